"""Background runs: stored in a database, performed by any process of the service, and resumed where they stood.

Its modules import SQLAlchemy, which the image `slim` does not have: call `check_installed` before.
"""

from __future__ import annotations

from importlib.util import find_spec

from podwright.errors import ConfigurationError


def check_installed() -> None:
    """Check that the packages of the extra `background` are installed.

    Raises:
        ConfigurationError: One is not.
    """
    for package in ("aiosqlite", "alembic", "psycopg", "sqlalchemy"):
        if find_spec(package) is None:
            raise ConfigurationError(
                f"Background runs need the package '{package}', which is not installed.",
                suggestion="Use the image 'full', or install podwright-service[background].",
            )
