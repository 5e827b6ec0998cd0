"""The server as a process of its own: who gets an answer, what it costs to start, how it ends."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from lockstep.cli.main import main


@pytest.fixture
def server(write_run, tmp_path):
    write_run("a", [{"step": 1, "time": 1.0, "loss": 2.0}])
    command = [sys.executable, "-m", "lockstep", "watch", "--runs-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process, urlsplit(re.search(r"http\S+", process.stdout.readline())[0])
        process.kill()


def get(address, path, *, host=None, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=30)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": address.netloc if host is None else host, **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    return answer, answer.read() if "event-stream" not in (answer.getheader("Content-Type") or "") else b""


def test_only_the_token_opens_the_page_and_only_under_a_name_of_this_machine(server):
    _, address = server
    page = f"/?{address.query}"
    answer, body = get(address, page)
    assert answer.status == 200 and b"<title>Lockstep</title>" in body
    cookie = answer.getheader("Set-Cookie")
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    cookie = cookie.split(";")[0]
    # A tunnel (ssh -L) has another port in front of it.
    assert get(address, "/", host="localhost:9999", Cookie=cookie)[0].status == 200
    # Another service of this host may have cookies of its own, whatever is in them.
    assert get(address, "/", Cookie=f'prefs={{"theme": "dark"}}; {cookie}')[0].status == 200
    whole = {"since": None, "cursor": "1:0.0:1.0"}
    assert json.loads(get(address, "/api/series?run=a&tag=loss&tag=none", Cookie=cookie)[1]) == {
        "loss": [{"id": "a", "x": [1.0], "y": [2.0], **whole}],
        "none": [{"id": "a", "x": [], "y": [], **whole}],
    }
    for cursors in ("cursor=1:0.0:1.0", "cursor=no&cursor=2&cursor=3", "cursor="):
        answer = json.loads(get(address, f"/api/series?run=a&run=b&tag=loss&{cursors}", Cookie=cookie)[1])
        assert [part["y"] for part in answer["loss"]] == [[2.0]]
    refused = [
        get(address, "/"),
        get(address, "/?token=wrong"),
        get(address, "/?token=%ff%00"),
        get(address, "/api/run?id=a"),
        get(address, f"/api/run?id=a&{address.query}"),
        get(address, "/static/app.js"),
        get(address, "/", Cookie=cookie[:-1]),
        get(address, page, host="evil.example"),
        get(address, page, host=f"localhost.evil.example:{address.port}"),
        get(address, page, host="127.0.0.1.evil.example"),
        get(address, page, host=""),
    ]
    assert [answer.status for answer, _ in refused] == [403] * len(refused)
    assert not any(answer.getheader("Set-Cookie") or b"loss" in body for answer, body in refused)
    assert get(address, page, method="POST")[0].status == 405
    assert get(address, "/static/..%2f..%2fserver.py", Cookie=cookie)[0].status == 404


def test_every_answer_forbids_what_comes_from_outside(server):
    _, address = server
    for path in (f"/?{address.query}", "/nothing"):
        policy = get(address, path)[0].getheader("Content-Security-Policy")
        assert "default-src 'none'" in policy and "http" not in policy and "unsafe" not in policy


def test_it_listens_on_loopback_only_and_ctrl_c_ends_it_with_0(server):
    process, address = server
    own = socket.gethostbyname_ex(socket.gethostname())[2]
    for outside in (ip for ip in own if not ip.startswith("127.")):
        with pytest.raises(OSError), socket.create_connection((outside, address.port), timeout=2):
            pass
    # With a page open, whose connection would otherwise be waited for.
    cookie = get(address, f"/?{address.query}")[0].getheader("Set-Cookie").split(";")[0]
    live, _ = get(address, "/api/live", Cookie=cookie)
    assert live.status == 200 and b'"runs"' in live.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0 and process.stderr.read() == ""


def test_the_server_never_imports_torch(write_run, tmp_path):
    write_run("a", [{"step": 1, "time": 1.0, "loss": 2.0, "weights_sha256": "ab"}])
    program = (
        "import sys; from pathlib import Path; import lockstep.cli.watch; import lockstep.watch.server;"
        "from lockstep.watch.library import Library; library = Library(Path(sys.argv[1])); library.refresh();"
        "library.overview(); library.details('a'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["no-such-run"], "no-such-run"),
        (["--prot", "1"], "--prot"),
        (["--port", "99999"], "port"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path, capsys, words, problem):
    assert main(["watch", "--runs-dir", str(tmp_path), *words]) == 2
    error = capsys.readouterr().err
    assert problem in error and error.count("\n") == 1


def test_the_browser_is_opened_without_the_token_on_its_command_line(tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    before = signal.getsignal(signal.SIGTERM)

    def serve(library, token, listening):
        page = Path(unquote(urlsplit(opened[0]).path))
        assert token not in opened[0] and f"token={token}" in page.read_text()
        assert page.stat().st_mode & 0o777 == 0o600 and page.parent.stat().st_mode & 0o777 == 0o700
        opened.append(page)

    monkeypatch.setattr("lockstep.watch.server.serve", serve)
    try:
        assert main(["watch", "--runs-dir", str(tmp_path), "--open"]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not opened[1].exists()


def test_a_port_in_use_is_named(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["watch", "--runs-dir", str(tmp_path), "--port", str(port)]) == 2
    assert f"port {port}" in capsys.readouterr().err
