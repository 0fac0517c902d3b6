"""Drawn scenes: small pictures with sentences, boxes, word-to-object truth and near misses, all from a seed."""

from diptych.data.scenes.collection import scenes_collection
from diptych.data.scenes.draw import boxes, draw
from diptych.data.scenes.features import SceneFeatures
from diptych.data.scenes.generate import Captioned, captioned, captioned_scenes
from diptych.data.scenes.near_miss import NearMiss, NearMissPair, near_miss_set, near_misses
from diptych.data.scenes.scene import ATTRIBUTES, COLOURS, RELATIONS, SHAPES, SIZES, TEXTURES, Scene, Thing
from diptych.data.scenes.statement import Statement, could_hold, holds
from diptych.data.scenes.words import Caption

__all__ = [
    "ATTRIBUTES",
    "COLOURS",
    "RELATIONS",
    "SHAPES",
    "SIZES",
    "TEXTURES",
    "Caption",
    "Captioned",
    "NearMiss",
    "NearMissPair",
    "Scene",
    "SceneFeatures",
    "Statement",
    "Thing",
    "boxes",
    "captioned",
    "captioned_scenes",
    "could_hold",
    "draw",
    "holds",
    "near_miss_set",
    "near_misses",
    "scenes_collection",
]
