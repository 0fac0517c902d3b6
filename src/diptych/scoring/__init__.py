"""All pairs, fast and in bounded memory: blocks, groups of like length, candidates."""

from diptych.scoring.blocks import Block, score_all, score_all_near, score_blocks
from diptych.scoring.candidates import score_candidates
from diptych.scoring.top_k import top_k, top_k_both

__all__ = ["Block", "score_all", "score_all_near", "score_blocks", "score_candidates", "top_k", "top_k_both"]
