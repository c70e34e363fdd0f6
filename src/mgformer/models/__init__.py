"""The models: one table from name to class."""

from mgformer.models.base import Model
from mgformer.models.bprmf import BPRMF
from mgformer.models.directau import DirectAU
from mgformer.models.gformer.model import GFormer
from mgformer.models.gotnet.model import GOTNet
from mgformer.models.lightgcn import LightGCN
from mgformer.models.mgformer.model import MGFormer
from mgformer.models.sgl.model import SGL
from mgformer.models.simgcl import SimGCL
from mgformer.models.simple.ease import EASE
from mgformer.models.simple.gfcf import GFCF
from mgformer.models.simple.ials import IALS
from mgformer.models.simple.itemknn import ItemKNN
from mgformer.models.simple.popularity import Popularity
from mgformer.models.simple.puresvd import PureSVD
from mgformer.models.simple.rp3beta import RP3Beta
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
