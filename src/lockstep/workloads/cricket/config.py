"""A configuration of cricket: supervised learning, the matches and the graph network together."""

from lockstep.algorithms.supervised.settings import SupervisedSettings
from lockstep.config.config import Config
from lockstep.workloads.cricket.network.settings import GraphSettings
from lockstep.workloads.cricket.settings import CricketSettings

CricketConfig = Config[SupervisedSettings, CricketSettings, GraphSettings]
