"""Offline learning from recorded episodes, on the device or streamed from the host, instead of a collector."""

import platform
from collections.abc import Mapping

import psutil
import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.experience.columns import TASK, columns
from lockstep.algorithms.tdmpc2.experience.recorded import RecordedEpisodes
from lockstep.algorithms.tdmpc2.experience.streaming import StreamedSequences, bytes_held
from lockstep.algorithms.tdmpc2.model.networks import Spaces
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.reporting.metrics import Stats
from lockstep.rl.replay import bytes_of_row
from lockstep.rl.sequence_replay import SequenceReplay


class OfflineData:
    """One cohort's part of the data, with a collector's methods; a resumed run reads it from disk again."""

    def __init__(self, lanes: range, memory: SequenceReplay | StreamedSequences, data_digest: str) -> None:
        """`data_digest`: identifies the whole data, not only this part."""
        self.lanes, self.memory, self.data_digest = lanes, memory, data_digest

    def decide(self, number: int, at_random: bool) -> None:
        """Nothing to do: there are no environments."""

    def act(self, number: int) -> None:
        """Nothing to do: there are no environments."""

    def report(self) -> Stats:
        """Nothing to report."""
        return {}

    def state(self, written: int) -> dict[int, dict[str, Tensor]]:
        """Nothing to save: it is all in the data."""
        return {lane: {} for lane in self.lanes}

    def load(self, lanes: Mapping[int, Mapping[str, Tensor]], written: int) -> None:
        """Nothing to restore."""


def fits_on_device(files: RecordedEpisodes, settings: TDMPC2Settings, spaces: Spaces, world: World) -> bool:
    """Whether a rank's data is kept on its device; UserError if it has to be and cannot. Called by every rank."""
    if settings.data_on == "host":
        return False
    lanes, device = world.lanes.mine, world.device
    needed = len(lanes) * _rows(files, settings, lanes, world.lanes.total) * bytes_of_row(columns(spaces))
    # Ranks may share a device, and its memory with it. Asking all of them also makes each wait until the others have
    # looked, so that nobody counts as taken what a neighbour has loaded in the meantime.
    asked = world.gather_json([_name_of(device), needed, _free(device)])
    sharing = [(need, free) for name, need, free in asked if name == asked[world.rank][0]]
    return _fits(settings, sum(need for need, _ in sharing), min(free for _, free in sharing), len(sharing), device)


def _rows(files: RecordedEpisodes, settings: TDMPC2Settings, lanes: range, total: int) -> int:
    """Rows of a tensor that these lanes share: those of the longest lane."""
    steps = [sum(lengths) for lengths in (files.lengths()[lane::total] for lane in lanes)]
    # A replay buffer needs room for two sequences, even if the data is shorter.
    return max(*steps, 2 * settings.horizon)


def read_offline(
    files: RecordedEpisodes,
    settings: TDMPC2Settings,
    spaces: Spaces,
    seed: int,
    lanes: range,
    world: World,
    on_device: bool,
) -> OfflineData:
    """Load these lanes' part of the data, or prepare to stream it: lane i of n has the episodes i, i + n and so on."""
    total, horizon = world.lanes.total, settings.horizon
    rows, kept = _rows(files, settings, lanes, total), columns(spaces)
    if not on_device:
        streamed = StreamedSequences(files, lanes, total, horizon, spaces, seed, world.device)
        return OfflineData(lanes, streamed, files.digest())
    memory = SequenceReplay(lanes, rows, 1, kept, seed, world.device, horizon)
    filled = dict.fromkeys(lanes, 0)
    # By number and not by cohort, so that a lane has the same episodes on any number of ranks.
    numbers = [number for number in range(files.count) if number % total in lanes]
    for number, episode in zip(numbers, files.episodes(numbers), strict=True):
        lane = number % total
        task = {TASK: torch.full((len(episode.action),), episode.task)} if spaces.tasks > 1 else {}
        memory.keep(
            lane,
            filled[lane],
            observation=episode.observation[:-1],
            following=episode.observation[1:],
            action=episode.action,
            reward=episode.reward,
            terminated=episode.terminated,
            **task,
        )
        filled[lane] += len(episode.action)
    return OfflineData(lanes, memory, files.digest())


def _name_of(device: torch.device) -> str:
    """A name that only ranks on the same device of the same machine have."""
    # By its UUID: with CUDA_VISIBLE_DEVICES several GPUs can be cuda:0, each to its own rank.
    part = torch.cuda.get_device_properties(device).uuid if device.type == "cuda" else device.type
    return f"{platform.node()} {part}"


def _free(device: torch.device) -> int:
    """Bytes of memory that are free for data on the device."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available


def _fits(settings: TDMPC2Settings, needed: int, free: int, ranks: int, device: torch.device) -> bool:
    """Whether data of so many bytes, of all the ranks on one device, is kept there."""
    if settings.data_on == "auto":
        # The networks, their gradients and the plans need room as well.
        return needed <= free // 2
    # Before allocating: an error that names the data helps more than an out-of-memory failure.
    if needed > free:
        held = "a rank's part of it" if ranks == 1 else f"what {ranks} ranks hold of it"
        raise UserError(
            f"data_dir {settings.data_dir}: {held} needs {needed / 2**30:.1f} GiB of memory, but "
            f"{free / 2**30:.1f} GiB are free on {device}; stream it with data_on host, or use more "
            f"{'GPUs' if device.type == 'cuda' else 'machines'} (each holds only its lanes' part)"
        )
    return True


def check_data(files: RecordedEpisodes, settings: TDMPC2Settings, lanes: int, spaces: Spaces) -> str:
    """Check before the start that there is data for every lane; returns a line for the plan."""
    # A lane can only sample sequences if at least one of its episodes is as long as the horizon.
    lacking = [lane for lane in range(lanes) if max(files.lengths()[lane::lanes], default=0) < settings.horizon]
    if lacking:
        raise UserError(
            f"data_dir {settings.data_dir}: {files.count} episode(s) are too few, or too short for a horizon of "
            f"{settings.horizon}, to give each of {lanes} lanes one; record more, or lower --lanes"
        )
    kept = bytes_of_row(columns(spaces)) * files.steps / 2**30
    read = bytes_held(settings.batch_size, settings.horizon, spaces.observation, spaces.action) / 2**20
    held = {
        "device": f"{kept:.2f} GiB on the devices",
        "host": f"streamed, {read:.1f} MiB on the hosts",
        "auto": f"{kept:.2f} GiB on the devices, or streamed with {read:.1f} MiB on the hosts where it does not fit",
    }
    return (
        f"data         {files.count:,} episodes, {files.steps:,} steps in {settings.data_dir}; {held[settings.data_on]}"
    )
