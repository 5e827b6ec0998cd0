import os
import stat

import pytest

from lockstep.errors import UserError
from lockstep.launch import secret


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    monkeypatch.delenv(secret.VARIABLE, raising=False)


def test_launchers_with_a_common_run_directory_share_a_secret_only_the_user_can_read(tmp_path):
    first = secret.shared_secret(tmp_path)
    assert len(first) == 64
    assert secret.shared_secret(tmp_path) == first
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_every_launch_on_one_machine_has_a_secret_of_its_own():
    assert secret.own_secret() != secret.own_secret()


def test_the_users_own_secret_is_used_and_a_short_one_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(secret.VARIABLE, "sixteen letters!")
    assert secret.shared_secret(tmp_path) == secret.own_secret() == "sixteen letters!"
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv(secret.VARIABLE, "short")
    with pytest.raises(UserError, match="LOCKSTEP_SECRET: has 5 characters; give 16 to 1024"):
        secret.own_secret()


@pytest.mark.parametrize("how", ["readable", "link", "fifo", "short"])
def test_a_secret_that_others_can_read_or_that_is_malformed_is_refused(tmp_path, how):
    file = tmp_path / ".secret"
    if how == "fifo":
        os.mkfifo(file, 0o600)
    elif how == "link":
        (tmp_path / "elsewhere").write_text("x" * 64)
        file.symlink_to(tmp_path / "elsewhere")
    else:
        file.write_text("x" * (5 if how == "short" else 64))
        file.chmod(0o644 if how == "readable" else 0o600)
    with pytest.raises(UserError, match=r"\.secret: "):
        secret.shared_secret(tmp_path)
