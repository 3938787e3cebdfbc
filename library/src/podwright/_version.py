"""The version of the library, the service, the image and the charts, written here only."""

__version__ = "0.1.0"
