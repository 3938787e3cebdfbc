"""Background runs: stored in a database, performed by any process of the service, and resumed where they stood.

Its modules import SQLAlchemy, which the image `slim` does not have: call `check_installed` before.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from podwright.errors import ConfigurationError
from podwright_service.settings import Settings

_PACKAGES = (
    "aiosqlite",
    "alembic",
    "psycopg",
    "sqlalchemy",
    "standardwebhooks",
)


def check_webhook(settings: Settings) -> None:
    """Check that the settings of the webhook are complete.

    Raises:
        ConfigurationError: There is no database of background runs, or no secret.
    """
    if settings.webhook is None:
        return
    if settings.runs_database is None:
        raise ConfigurationError(
            "PODWRIGHT_WEBHOOK is notified of background runs, and there is no database for them.",
            suggestion="Set PODWRIGHT_RUNS_DATABASE, or unset PODWRIGHT_WEBHOOK.",
        )
    if not settings.webhook_secret:
        raise ConfigurationError(
            "PODWRIGHT_WEBHOOK needs a secret, by which receivers know that a notification is genuine.",
            suggestion='Set PODWRIGHT_WEBHOOK_SECRET; make one with: echo "whsec_$(openssl rand -base64 32)"',
        )


def check_conversations(settings: Settings) -> None:
    """Check that there is a database for conversations that are to be kept.

    Raises:
        ConfigurationError: There is none.
    """
    if settings.conversations and settings.runs_database is None:
        raise ConfigurationError(
            "PODWRIGHT_CONVERSATIONS keeps conversations in the database of background runs, and there is none.",
            suggestion="Set PODWRIGHT_RUNS_DATABASE, or unset PODWRIGHT_CONVERSATIONS.",
        )


def check_installed() -> None:
    """Check that the packages of the extra `background` are installed.

    Raises:
        ConfigurationError: One is not.
    """
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise ConfigurationError(
                f"Background runs need the package '{package}', which is not installed.",
                suggestion="Use the image 'full', or install podwright-service[background].",
            )


def check_database(settings: Settings) -> None:
    """Check that the URL of the database is one, and that the file of SQLite has a folder; nothing is connected.

    Raises:
        ConfigurationError: They are not, or a package is not installed.
    """
    if settings.runs_database is None:
        return
    check_installed()
    from podwright_service.background.storage.database import database_url

    url = database_url(settings.runs_database.get_secret_value())
    folder = Path(url.database or "").parent
    if url.get_backend_name() == "sqlite" and not folder.is_dir():
        raise ConfigurationError(
            f"PODWRIGHT_RUNS_DATABASE: There is no folder '{folder}'.",
            suggestion="Make the folder, or name a file in another one.",
        )
