"""Files with credentials in a component folder: no copy of the folder has them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.image.conftest import Shell
from tests.image.test_build import agent
from tests.image.test_push import Client

from podwright.folders.folder import Folder
from podwright_service.images.context import (
    component_files,
    files_with_credentials,
)

SECRET = "canary-4711"
CERTIFICATE = (
    f"-----BEGIN CERTIFICATE-----\n{SECRET}\n-----END CERTIFICATE-----\n"
)
ACCOUNT = json.dumps({"type": "service_account", "private_key": SECRET})


def key(kind: str = "") -> str:
    """A private key in a PEM file."""
    label = f"{kind} PRIVATE KEY".strip()
    return f"-----BEGIN {label}-----\n{SECRET}\n-----END {label}-----\n"


def put(folder: Path, name: str, text: str = SECRET) -> None:
    """Write a file of a component."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def copied(folder: Path) -> list[str]:
    """The files of a component but its blueprint."""
    files = [str(file) for file in component_files(folder)]
    return [file for file in files if file != "blueprint.json"]


@pytest.mark.parametrize(
    "name",
    [
        "credentials.json", "application_default_credentials.json", "service-account.json", "my-service_account-1.json",
        "client_secret_12.apps.googleusercontent.com.json", "token.json", "secrets.yaml", "secrets.toml", "prod.env",
        "prod.env.local", "id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519.bak", "deploy_rsa", "server.pem",
        "SERVER.KEY", "Credentials.JSON", "client.p12", "client.pfx", "store.jks", "app.keystore", "putty.ppk",
        "passwords.kdbx", "office.ovpn", "AuthKey_1.p8", "http.keytab", "_netrc", "kubeconfig", "prod.kubeconfig",
        "terraform.tfstate", "terraform.tfstate.backup", "prod.tfvars", "rootkey.csv", "data/inner/credentials",
        ".env", ".env.production", ".netrc", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd", ".pgpass",
        "agents/critic/.env",
    ],
)  # fmt: skip
def test_names_of_credentials(tmp_path: Path, name: str) -> None:
    """A file with such a name is left out, in any letter case and folder, and it is named."""
    folder = agent(tmp_path / "packed")
    put(folder, name)
    assert copied(folder) == []
    assert files_with_credentials(Folder(folder), ()) == [name]


@pytest.mark.parametrize(
    "name", [".aws/credentials", ".ssh/id_rsa", ".kube/config", "x.tblk/key"]
)
def test_folders_of_credentials(tmp_path: Path, name: str) -> None:
    """A folder that has nothing but credentials is left out and named as a whole."""
    folder = agent(tmp_path / "packed")
    put(folder, name)
    assert copied(folder) == []
    left_out = files_with_credentials(Folder(folder), ())
    assert left_out == [name.partition("/")[0]]


CONTENTS = {
    "a key": key(),
    "an RSA key": key("RSA"),
    "an SSH key": key("OPENSSH"),
    "an encrypted key": key("ENCRYPTED"),
    "with Windows line ends": "\ufeff" + key("EC").replace("\n", "\r\n"),
    "a PGP key": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nx\n",
    "attributes before a key": f"Bag Attributes\n  friendlyName: x\n{key()}",
    "certificates and a key": 400 * CERTIFICATE + key(),
    "a PuTTY key": f"PuTTY-User-Key-File-3: ssh-ed25519\n{SECRET}",
    "an age key": f"# created: 2026\nAGE-SECRET-KEY-1{SECRET}",
    "a service account": ACCOUNT,
    "a nested service account": f'{{"gcp": {ACCOUNT}}}',
    "a user's account": '{"type": "authorized_user", "refresh_token": "x"}',
}


@pytest.mark.parametrize("text", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("name", ["notes.txt", "data/settings.json"])
def test_contents_that_are_credentials(
    tmp_path: Path, name: str, text: str
) -> None:
    """A private key is recognized by what is in the file, whatever its name."""
    folder = agent(tmp_path / "packed")
    put(folder, name, text)
    assert copied(folder) == []
    assert files_with_credentials(Folder(folder), ()) == [name]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"servers": [{"key": key()}]}),
        "name: x\n" + 30 * "\n" + f"key: |\n  {key()}",
    ],
    ids=["JSON", "YAML"],
)
def test_keys_in_data(tmp_path: Path, text: str) -> None:
    """A private key that is a value of data is recognized, at any depth."""
    folder = agent(tmp_path / "packed")
    names = ["data.json", "data.yaml"]
    for name in names:
        put(folder, name, text)
    assert copied(folder) == []
    assert files_with_credentials(Folder(folder), ()) == names


def test_a_link_to_a_key(tmp_path: Path) -> None:
    """A link with the name of a key is left out, wherever it leads."""
    folder = agent(tmp_path / "packed")
    (folder / "server.key").symlink_to("/nowhere")
    assert copied(folder) == []
    assert files_with_credentials(Folder(folder), ()) == ["server.key"]


def test_blueprints_stay(tmp_path: Path) -> None:
    """A blueprint is part of a component, whatever its agent is called and its instructions say."""
    folder = agent(tmp_path / "packed")
    blueprint = json.loads((folder / "blueprint.json").read_text())
    blueprint["instructions"] = f"Never print {key()}"
    text = json.dumps(blueprint)
    for name in ("blueprint.json", "agents/token.json", "agents/keys.json"):
        put(folder, name, text)
    put(folder, "agents/credentials.json")
    assert copied(folder) == ["agents/keys.json", "agents/token.json"]
    left_out = files_with_credentials(Folder(folder), ())
    assert left_out == ["agents/credentials.json"]


PUBLIC = {
    "ca.pem": 2 * CERTIFICATE,
    "public.key": "-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n",
    "ca.crt": CERTIFICATE,
    "tools.py": f'KEY = """\\\n{key()}"""',
    "id_rsa_tools.py": "x = 1",
    "credentials/__init__.py": "x = 1",
    "guide.md": "# Keys\n" + 30 * "\n" + key(),
    "tokens.txt": "none",
    "prices.json": '{"type": "service", "private_key_note": "none"}',
    "environment.env.example": "KEY=",
    "monkey.txt": "x",
}


@pytest.mark.parametrize(("name", "text"), PUBLIC.items(), ids=PUBLIC)
def test_files_that_stay(tmp_path: Path, name: str, text: str) -> None:
    """Certificates, public keys, code and texts about keys are part of a component."""
    folder = agent(tmp_path / "packed")
    put(folder, name, text)
    assert copied(folder) == [name]
    assert files_with_credentials(Folder(folder), ()) == []


def test_a_text_of_the_blueprint_stays(tmp_path: Path) -> None:
    """A file that the blueprint names as a text is part of the component, whatever its name."""
    folder = agent(tmp_path / "packed")
    file = folder / "blueprint.json"
    blueprint = json.loads(file.read_text())
    blueprint["instructions"] = {"file": "secrets.yaml"}
    file.write_text(json.dumps(blueprint))
    put(folder, "secrets.yaml", "Keep secrets.")
    assert copied(folder) == ["secrets.yaml"]
    assert files_with_credentials(Folder(folder), ()) == []


def test_files_beside_the_folder(tmp_path: Path) -> None:
    """Shared packages are copied without credentials too; these are named by their places in the copy."""
    folder = agent(tmp_path / "packed")
    put(tmp_path / "shared", "words.py", "x = 1")
    put(tmp_path / "shared", "keys/id_ecdsa")
    left_out = files_with_credentials(Folder(folder), ())
    assert left_out == ["shared/keys/id_ecdsa"]


MODULE = """
from podwright import Agent
from calculator.words import look
looker = Agent("looker", "Look.", "offline/echo", tools=[look])
"""


@pytest.fixture
def calculator(tmp_path: Path) -> Path:
    """A component with a certificate and files with credentials."""
    folder = agent(tmp_path / "calculator")
    put(folder, "credentials.json")
    put(folder, "agents/inner/.env")
    put(folder, "notes.txt", key())
    put(folder, "ca.pem", CERTIFICATE.replace(SECRET, "public"))
    return folder


def check_note(done: subprocess.CompletedProcess[str]) -> None:
    """Check that a command succeeded, and that one line of standard error names the files that it has left out."""
    assert done.returncode == 0, done.stderr
    (note,) = [line for line in done.stderr.splitlines() if "left out" in line]
    for name in ("credentials.json", "agents/inner/.env", "notes.txt"):
        assert name in note
    assert "ca.pem" not in note
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.usefixtures("calculator")
def test_chart_values_have_no_credentials(shell: Shell) -> None:
    """`deploy render` names the files that are not in the values."""
    done = shell("deploy", "render", "calculator")
    check_note(done)
    component = yaml.safe_load(done.stdout)["components"]["calculator"]
    assert list(component["files"]) == ["ca.pem"]


@pytest.mark.usefixtures("calculator")
def test_an_image_has_no_credentials(shell: Shell, tmp_path: Path) -> None:
    """`build` names the files that are not in the image."""
    client = str(Client(tmp_path / "client").program)
    done = shell("build", "calculator", "--tag", "x", "--docker", client)
    check_note(done)
    assert "ca.pem" in done.stdout


def test_an_export_has_no_credentials(
    shell: Shell, calculator: Path, tmp_path: Path
) -> None:
    """`export` names the files that it does not copy, those of packages of a component in Python included."""
    check_note(shell("export", "calculator", "--output", "folder"))
    put(calculator, "words.py", "def look(at: str) -> str:\n    return at")
    put(calculator, "__init__.py", MODULE)
    check_note(shell("export", "calculator:looker", "--output", "module"))
    out = [*tmp_path.glob("folder/**/*"), *tmp_path.glob("module/**/*")]
    copies = {file.name for file in out}
    assert {"blueprint.json", "words.py", "ca.pem"} <= copies
    assert not {"credentials.json", "notes.txt", ".env"} & copies
