"""The version of the library, the service, the image and the chart; `make chart` writes it there too."""

__version__ = "0.1.0"
