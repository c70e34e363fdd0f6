"""The models: one table from name to class."""

from mgformer.models.base import Model
from mgformer.models.bprmf import BPRMF
from mgformer.models.directau import DirectAU
from mgformer.models.floors.ease import EASE
from mgformer.models.floors.gfcf import GFCF
from mgformer.models.floors.ials import IALS
from mgformer.models.floors.itemknn import ItemKNN
from mgformer.models.floors.popularity import Popularity
from mgformer.models.floors.puresvd import PureSVD
from mgformer.models.floors.rp3beta import RP3Beta
from mgformer.models.gformer import GFormer
from mgformer.models.gotnet import GOTNet
from mgformer.models.lightgcn import LightGCN
from mgformer.models.mgformer import MGFormer
from mgformer.models.sgl import SGL
from mgformer.models.simgcl import SimGCL
from mgformer.models.ultragcn import UltraGCN

MODELS: dict[str, type[Model]] = {
    "mgformer": MGFormer,
    "bprmf": BPRMF,
    "lightgcn": LightGCN,
    "sgl": SGL,
    "simgcl": SimGCL,
    "directau": DirectAU,
    "gotnet": GOTNet,
    "ultragcn": UltraGCN,
    "gformer": GFormer,
    "popularity": Popularity,
    "itemknn": ItemKNN,
    "rp3beta": RP3Beta,
    "ease": EASE,
    "puresvd": PureSVD,
    "gfcf": GFCF,
    "ials": IALS,
}
