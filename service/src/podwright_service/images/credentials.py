"""Files with credentials in a component folder: they are part of no image, chart or export.

They are recognized by their names, as in the signatures of gitrob, the rules of gitleaks and the templates of
github/gitignore, and by the private keys in them.
"""

from __future__ import annotations

import fnmatch
import re
import stat
from collections.abc import Collection
from pathlib import Path

_KEYS = (
    "*.agilekeychain", "*.bks", "*.jceks", "*.jks", "*.kdb", "*.kdbx", "*.key", "*.keychain", "*.keychain-db",
    "*.keypair", "*.keystore", "*.keytab", "*.kwallet", "*.ovpn", "*.p12", "*.p8", "*.pem", "*.pfx", "*.pkcs12",
    "*.ppk", "*.psafe3", "*.tblk", "*_dsa", "*_ecdsa", "*_ed25519", "*_rsa", "id_dsa*", "id_ecdsa*", "id_ed25519*",
    "id_rsa*", "otr.private_key", "secring.*", "ssh_host_*_key",
)  # fmt: skip
_PASSWORDS = (
    "*.env", "*.env.*", "*.htpasswd", "*.secret", "*.secrets", "*.tfstate", "*.tfstate.*", "*.tfvars", "*.tfvars.json",
    "*accesskeys.csv", "*credentials.json", "*service-account*.json", "*service_account*.json", "*serviceaccount*.json",
    "_netrc", "client-secret*.json", "client_secret*.json", "credentials", "credentials.csv", "credentials.ini",
    "credentials.toml", "credentials.txt", "credentials.xml", "credentials.yaml", "credentials.yml", "filezilla.xml",
    "htpasswd", "kubeconfig*", "*.kubeconfig", "local.settings.json", "netrc", "pgpass", "pgpass.conf", "proftpdpasswd",
    "recentservers.xml", "robomongo.json", "rootkey.csv", "secret.json", "secret.toml", "secret.yaml", "secret.yml",
    "secrets.json", "secrets.toml", "secrets.txt", "secrets.yaml", "secrets.yml", "sftp-config.json", "token.json",
    "token.pickle", "tokens.json",
)  # fmt: skip
_HIDDEN = (
    ".aws", ".azure", ".boto", ".docker", ".dockercfg", ".env", ".env.*", ".envrc", ".git-credentials", ".gnupg",
    ".htpasswd", ".kube", ".my.cnf", ".netrc", ".npmrc", ".pgpass", ".pypirc", ".s3cfg", ".ssh", ".vault-token",
)  # fmt: skip
"""Hidden files and folders are left out whatever they are; these are worth a note."""
_NO_CREDENTIALS = ("*.py", "*.example", "*.sample", "*.template", "*.dist")
"""Code, without which a component fails, and examples."""


def _matcher(patterns: Collection[str]) -> re.Pattern[str]:
    """An expression for names that one of these patterns of a shell matches, in any letter case."""
    return re.compile("|".join(map(fnmatch.translate, patterns)), re.IGNORECASE)


_named = _matcher((*_KEYS, *_PASSWORDS))
_hidden = _matcher(_HIDDEN)
_exempt = _matcher(_NO_CREDENTIALS)
_PEM = re.compile(rb"^-{4,5} ?BEGIN ([A-Z0-9 ]+?) ?-{4,5}", re.MULTILINE)
_PUBLIC = re.compile(rb".*(CERTIFICATE|PUBLIC KEY|PUBLIC KEY BLOCK|X509 CRL)")
_PRIVATE = re.compile(rb".*PRIVATE KEY( BLOCK)?")
_OTHER_KEY = re.compile(rb"PuTTY-User-Key-File-|AGE-SECRET-KEY-")
_OF_DATA = (".cfg", ".conf", ".ini", ".json", ".properties", ".toml", ".xml", ".yaml", ".yml")  # fmt: skip
_KEY_IN_DATA = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----")
_ACCOUNT = re.compile(rb'"type"\s*:\s*"(service_account|authorized_user)"')
_ACCOUNT_SECRET = re.compile(rb'"(private_key|refresh_token)"\s*:')
_FIRST_LINES = 20
"""Lines in which a file with a key says so; a text about keys may quote one further below."""
_MOST_BYTES = 1024 * 1024
"""Bytes of a file that are searched."""


def has_name_of_credentials(name: str) -> bool:
    """Whether a file with this name has credentials, as far as the name says."""
    return bool(_named.fullmatch(name)) and not _exempt.fullmatch(name)


def is_folder_of_credentials(name: str) -> bool:
    """Whether a folder with this name is such a file to its program; packages of Python have no dot in their names."""
    return "." in name and has_name_of_credentials(name)


def has_credentials(file: Path) -> bool:
    """Whether a file has credentials; a file of certificates and public keys alone has none, whatever its name.

    Raises:
        OSError: The file cannot be read.
    """
    named = has_name_of_credentials(file.name)
    if file.suffix == ".py" or not stat.S_ISREG(file.lstat().st_mode):
        return named
    try:
        with file.open("rb") as opened:
            data = opened.read(_MOST_BYTES)
    except OSError:
        if named:  # a key is often readable for its owner alone
            return True
        raise
    data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r", b"")
    if named:
        return not _is_public(data)
    if file.suffix.lower() in _OF_DATA and _KEY_IN_DATA.search(data):
        return True
    return _is_private(data)


def _is_public(data: bytes) -> bool:
    blocks = _PEM.findall(data)
    return bool(blocks) and all(map(_PUBLIC.fullmatch, blocks))


def _is_private(data: bytes) -> bool:
    first_lines = b"\n".join(data[:8192].split(b"\n")[:_FIRST_LINES])
    if _OTHER_KEY.search(first_lines):
        return True
    if _PEM.search(first_lines):
        return any(map(_PRIVATE.fullmatch, _PEM.findall(data)))
    return bool(
        data.lstrip().startswith((b"{", b"["))
        and _ACCOUNT.search(data)
        and _ACCOUNT_SECRET.search(data)
    )


def is_hidden_credentials(name: str) -> bool:
    """Whether a hidden file or folder with this name often has credentials."""
    return bool(_hidden.fullmatch(name)) and not _exempt.fullmatch(name)


def note_on_credentials(files: Collection[str]) -> str:
    """A note that names files that were left out."""
    return (
        f"Note: left out, because they may have credentials: {', '.join(files)}. Give them to the component where it"
        " runs, as variables or mounted secrets."
    )
