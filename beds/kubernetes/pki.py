"""Certificates and tokens: an authority of the cluster's own, and one token for each user."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from beds.kubernetes.build import run


class Authority:
    """Signs what servers show, so that clients can verify it.

    Args:
        folder: where keys and certificates lie; private.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.key, self.certificate = folder / "ca.key", folder / "ca.crt"
        subject = ["-subj", "/CN=edgewise-bed", "-days", "30"]
        openssl(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            self.key,
            "-out",
            self.certificate,
            *subject,
        )

    def sign(self, name: str, subject: str, addresses: Sequence[str] = ()) -> tuple[Path, Path]:
        """A key, and a certificate for servers at `addresses` or for a client.

        Args:
            subject: as "/CN=…" or "/O=…/CN=…".
            addresses: IP addresses or names it is valid for.
        """
        key, request, certificate = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        extensions = self.folder / f"{name}.ext"
        kinds = [f"{'IP' if each[0].isdigit() else 'DNS'}:{each}" for each in addresses]
        text = "extendedKeyUsage=serverAuth,clientAuth\n"
        extensions.write_text(text + (f"subjectAltName={','.join(kinds)}\n" if kinds else ""))
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", subject)
        signer = ["-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", "30"]
        openssl("x509", "-req", "-in", request, "-out", certificate, "-extfile", extensions, *signer)
        return key, certificate

    def key_pair(self, name: str) -> tuple[Path, Path]:
        """A private and a public key, for the tokens of service accounts."""
        private, public = self.folder / f"{name}.key", self.folder / f"{name}.pub"
        openssl("genrsa", "-out", private, "2048")
        openssl("rsa", "-in", private, "-pubout", "-out", public)
        return private, public


def openssl(*arguments: str | Path) -> None:
    """Run openssl; the files it makes are private by the bed's folder."""
    run(["openssl", *map(str, arguments)])


def tokens(file: Path, users: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """A token for each user, in the form that the API server reads.

    Args:
        users: groups of each.
    """
    made = {user: secrets.token_hex(16) for user in users}
    rows = [f'{made[user]},{user},{user},"{",".join(groups)}"' for user, groups in users.items()]
    file.touch(mode=0o600)
    file.write_text("\n".join(rows) + "\n")
    return made


def kubeconfig(
    file: Path, server: str, authority: Path, user: str, token: str, namespace: str = "default"
) -> Path:
    """A kubeconfig file (JSON, which is YAML too) that verifies the server by the cluster's authority."""
    content = {
        "apiVersion": "v1", "kind": "Config", "current-context": "bed",
        "clusters": [{"name": "bed", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": user, "namespace": namespace}}],
    }  # fmt: skip
    file.touch(mode=0o600)
    file.write_text(json.dumps(content, indent=1))
    return file
