"""Image observations: the encoder against its definition, and shifts against pictures small enough to read."""

import torch
import torch.nn.functional as F

from lockstep.algorithms.tdmpc2.experience.columns import columns
from lockstep.algorithms.tdmpc2.model.images import ImageEncoder, shifted
from lockstep.algorithms.tdmpc2.model.networks import Sizes, Spaces, TDMPC2Model
from lockstep.algorithms.tdmpc2.model.official import converted
from lockstep.algorithms.tdmpc2.training.sampler import Sampler
from lockstep.rl.sequence_replay import SequenceReplay

SPACES = Spaces(9 * 64 * 64, (1,), (20,), image=(9, 64, 64), frames=3)


def test_the_encoder_is_the_official_one():
    encoder = ImageEncoder(9, 32, 512, 8)
    assert [tuple(layer.weight.shape) for layer in encoder] == [
        (32, 9, 7, 7), (32, 32, 5, 5), (32, 32, 3, 3), (32, 32, 3, 3),
    ]  # fmt: skip
    images = torch.randint(256, (2, 3, 9, 64, 64), dtype=torch.uint8)
    signal = images.flatten(0, 1).div(255.0).sub(0.5)
    for number, (layer, stride) in enumerate(zip(encoder, (2, 2, 2, 1), strict=True)):
        signal = F.conv2d(F.relu(signal) if number else signal, layer.weight, layer.bias, stride)
    expected = F.softmax(signal.flatten(1).view(6, 64, 8), -1).view(2, 3, 512)
    torch.testing.assert_close(encoder(images), expected)


def test_a_shifted_image_repeats_its_edge():
    picture = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=torch.uint8).expand(2, 1, 3, 3)
    moved = shifted(picture, torch.tensor([1, 0]), torch.tensor([0, -2]))
    assert moved[0, 0].tolist() == [[1, 2, 3], [1, 2, 3], [4, 5, 6]]
    assert moved[1, 0].tolist() == [[3, 3, 3], [6, 6, 6], [9, 9, 9]]


def test_weights_of_the_official_image_encoder_get_our_names():
    model = TDMPC2Model(Sizes(16, 2, 24, 16, 2, channels=4), SPACES, seed=1)
    ours = {name: value for name, value in model.state_dict().items() if name.startswith("world.encoder.")}
    # ShiftAug and PixelPreprocess come first there, and a ReLU after each convolution.
    theirs = {f"_encoder.rgb.{2 * int(name.split('.')[2]) + 2}.{name.split('.')[3]}": v for name, v in ours.items()}
    assert sorted(theirs)[-1] == "_encoder.rgb.8.weight"
    assert {name: value.tolist() for name, value in converted(theirs).items()} == {
        n: v.tolist() for n, v in ours.items()
    }


def test_a_batch_has_the_frames_before_each_step_of_the_same_episode():
    memory = SequenceReplay(range(1), 40, 1, columns(SPACES), 1, torch.device("cpu"), 3, context=2)
    # Episodes of 5 steps; a frame shows its number in every pixel, so that a shift changes nothing. The last frame of
    # an episode, 100 more, is no step's first observation.
    for number in range(90):
        step = number % 5
        frame = torch.full((1, 3, 64, 64), number, dtype=torch.uint8)
        following = torch.full_like(frame, number + 1 if step < 4 else number + 101)
        parts = {"observation": frame, "following": following, "action": torch.zeros(1, 1)}
        parts |= {"reward": torch.tensor([float(number)]), "terminated": torch.tensor([False])}
        memory.append(number, torch.tensor([step == 4]), **parts)
    sampler = Sampler(memory, range(1), 32, Sizes(16, 2, 24, 16, 2), SPACES, seed=1)
    batch = sampler.empty(1 / 32, 0)
    sampler.fill(batch, torch.tensor(4))
    seen = batch.observation[..., 0, 0][..., ::3].int()
    for sample, first in enumerate(batch.reward[0].int().tolist()):
        # Rows 50 to 89 are stored; the two oldest of them only as frames before others.
        assert first >= 52
        start = first - first % 5
        for later in range(4):
            now = first + later
            newest = now if now - start < 5 else now + 100
            expected = [max(start, now - 2), max(start, now - 1), newest]
            assert seen[later, sample].tolist() == expected
    assert len(set(batch.reward[0].tolist())) > 5


def test_shifts_move_images_by_up_to_three_pixels_and_follow_from_the_update():
    memory = SequenceReplay(range(1), 20, 1, columns(SPACES), 1, torch.device("cpu"), 3, context=2)
    ramp = torch.arange(64, dtype=torch.uint8)
    frame = ramp.expand(64, 64).expand(1, 3, 64, 64)
    for number in range(8):
        parts = {"observation": frame, "following": frame, "action": torch.zeros(1, 1), "reward": torch.zeros(1)}
        memory.append(number, torch.tensor([False]), **parts, terminated=torch.zeros(1))
    sampler = Sampler(memory, range(1), 64, Sizes(16, 2, 24, 16, 2), SPACES, seed=1)
    one, two, three = (sampler.empty(1 / 64, 0) for _ in range(3))
    for batch, update in ((one, 1), (two, 1), (three, 2)):
        sampler.fill(batch, torch.tensor(update))
    # Column 32 of a ramp shows how far it was moved; every step of every sample by its own number of pixels.
    moved = 32 - one.observation[..., 0, 0, 32].int()
    assert set(moved.flatten().tolist()) == {-3, -2, -1, 0, 1, 2, 3} and len(set(moved[:, 0].tolist())) > 1
    assert torch.equal(one.observation, two.observation) and not torch.equal(one.observation, three.observation)
