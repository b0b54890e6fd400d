# SPDX-License-Identifier: BSL-1.0
import os
import resource
import signal
import subprocess
import sys

import pytest

from remat_torch_plan.errors import PlanError
from remat_torch_plan.files import write_whole


@pytest.fixture
def no_room():
    """No file may be larger than 4 KiB, as on a full disk."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_file_is_replaced_whole_or_stays(tmp_path, no_room):
    file = tmp_path / "plan"
    write_whole(file, "one")
    with pytest.raises(PlanError, match="plan: the page cannot be written: File too large"):
        write_whole(file, "x" * 5000, "the page")
    assert file.read_text() == "one"
    assert os.listdir(tmp_path) == ["plan"]


def test_links_are_followed_and_modes_kept(tmp_path):
    file, link = tmp_path / "plan", tmp_path / "link"
    link.symlink_to("plan")
    write_whole(link, "one")  # the link leads nowhere yet
    file.chmod(0o640)
    write_whole(link, "two")
    assert link.is_symlink() and file.read_text() == "two" and file.stat().st_mode & 0o777 == 0o640
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(PlanError, match="Too many levels of symbolic links"):
        write_whole(loop, "one")


def test_pipes_and_devices_are_written_directly(tmp_path):
    write_whole(os.devnull, "one")
    assert not os.path.isfile(os.devnull)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        write_whole(pipe, "one")
        assert reader.communicate()[0] == "one"
    program = "import sys; from remat_torch_plan.files import write_whole; write_whole('/dev/stdout', 'one')"
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout == "one"
