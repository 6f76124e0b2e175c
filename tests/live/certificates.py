"""An authority, and what it signs, for tests."""

import shutil
import subprocess

import pytest


def signed(folder, name="edge.example"):
    """Files of an authority's certificate, and of a server's certificate and key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")

    def openssl(command):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)

    (folder / "names").write_text(f"subjectAltName=DNS:{name},DNS:localhost,IP:127.0.0.1")
    new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    openssl(f"req -x509 {new} -days 2 -subj /CN=authority -keyout ca.key -out ca.pem")
    openssl(f"req {new} -subj /CN={name} -keyout key.pem -out request.pem")
    openssl(
        "x509 -req -days 2 -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names "
        "-out cert.pem"
    )
    return folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
