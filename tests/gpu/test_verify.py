"""The proof on a GPU: several ranks, each on its own or sharing one, train the same model as one rank."""

import pytest

from lockstep.cli.main import main


@pytest.mark.gpu
def test_verify_holds_on_a_gpu(capsys):
    code = main(["verify", "snake", "--ranks", "1,2", "--device", "cuda"])
    shown = capsys.readouterr()
    assert code == 0, shown.out + shown.err
    assert "BROKEN" not in shown.out and "in true fp32" in shown.out
