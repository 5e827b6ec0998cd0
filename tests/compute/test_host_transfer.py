"""Tensors arrive under their names, with their shapes, and always in the same memory."""

import torch

from lockstep.compute.host_transfer import HostTransfer


def test_tensors_arrive_under_their_names():
    transfer = HostTransfer(2, {"flag": (), "vector": (3,), "table": (2, 2)}, torch.device("cpu"))
    views = dict(transfer.views)
    for shift in (0.0, 10.0):
        vector, table = torch.arange(6.0).view(2, 3) + shift, torch.arange(8).view(2, 2, 2) + int(shift)
        transfer.send(vector=vector, table=table, flag=torch.tensor([True, False]))
        assert views["flag"].tolist() == [1.0, 0.0]
        assert torch.equal(views["vector"], vector) and torch.equal(views["table"], table.float())
