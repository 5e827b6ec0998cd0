"""Handwritten digits of scikit-learn: a dataset and a module of your own, trained on any number of ranks.

lockstep train ./digits.py --ranks 2
lockstep verify ./digits.py
python digits.py                     the same from Python
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import lockstep


def digits(first: int, last: int) -> TensorDataset:
    """Images (64,) from 0 to 1 and their digits."""
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[first:last]
    return TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32)[order], torch.tensor(labels)[order])


def network() -> nn.Module:
    """Two convolutions, and dropout, which draws the same on any number of ranks."""
    images = nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 32, 3, padding=1), nn.ReLU())
    halved = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(images, halved, nn.Flatten(), nn.Dropout(0.3), nn.Linear(1024, 10))


class Digits(lockstep.Fit):
    """The same as a workload, for the command line."""

    name = "digits"
    summary = "handwritten digits"
    defaults = {"batch_size": 64, "epochs": 15, "learning_rate": 2e-3, "ema_decay": 0.99}

    def model(self) -> nn.Module:
        """The network to train."""
        return network()

    def train_set(self) -> TensorDataset:
        """1500 images to learn from."""
        return digits(0, 1500)

    def val_set(self) -> TensorDataset:
        """The other 297."""
        return digits(1500, 1797)


if __name__ == "__main__":
    run = lockstep.fit(network, digits(0, 1500), digits(1500, 1797), batch_size=64, epochs=15, learning_rate=2e-3)
    print(lockstep.load(run).predict(digits(1500, 1797).tensors[0][:5]).argmax(1))
