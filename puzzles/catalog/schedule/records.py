"""The best schedules known of the classics, by size: of every family, since several puzzles may have one size.

Those of a puzzle with a setting of its own are in the puzzle's file.
"""

from __future__ import annotations

from collections.abc import Mapping

from lib import Record
from lib.judging.family import DATA_PARALLEL, ONE_RANK, OWNERS_SEND, PIPELINE, REPEATED, SHARDED, SHARDED_PIPELINE


def records(family: str, *rows: tuple[float, int, int, str] | tuple[float, int, int, str, str]) -> tuple[Record, ...]:
    """Records of one family: timesteps, elements, the elements that the busiest rank sends, a file's name in
    solutions/records, and one of its variants if it has some."""
    return tuple(
        Record(time, memory, ": ".join([f"solutions/records/{name}.py", *variant]), family, traffic)
        for time, memory, traffic, name, *variant in rows
    )


RECORDS: Mapping[tuple[int, int, int], tuple[Record, ...]] = {
    (2, 4, 1): records(
        ONE_RANK,
        (16.5, 1_835_008, 0, "basic_batch_by_batch"),
    ),
    (2, 4, 4): (
        *records(DATA_PARALLEL, (5.1, 1_441_792, 786_432, "ddp_update_before_next_backward")),
        *records(
            SHARDED,
            (5.4, 1_114_112, 786_432, "ddp_sharded", "above_the_first"),
            (5.7, 917_504, 786_432, "ddp_sharded", "every_layer"),
        ),
    ),
    (6, 4, 4): (
        *records(
            SHARDED,
            (18.1, 2_752_512, 3_538_944, "fsdp_gather_once", "every_layer_all_reduced"),
            (18.4, 2_555_904, 3_735_552, "wsdp_five_layers_stay_whole"),
            (18.7, 2_359_296, 2_752_512, "fsdp_gather_once", "last_four_layers"),
            (19.0, 2_162_688, 2_949_120, "fsdp_gather_once", "last_three_layers"),
            (19.3, 1_966_080, 3_145_728, "fsdp_gather_once", "last_two_layers"),
            (19.6, 1_769_472, 3_342_336, "fsdp_gather_once", "last_layer"),
            (20.6, 1_638_400, 3_342_336, "fsdp_one_activation_twice"),
        ),
        *records(
            OWNERS_SEND,
            (16.7, 2_490_368, 3_932_160, "fsdp_owners_send", "six_layers_two_twice"),
            (17.5, 2_228_224, 4_718_592, "fsdp_owners_send", "six_layers_four_twice"),
        ),
    ),
    (8, 4, 4): (
        *records(
            PIPELINE,
            (29.5, 2_359_296, 2_097_152, "gpipe_laps", "a_batch_per_rank"),
            (32.9, 2_228_224, 1_048_576, "gpipe_recompute_while_waiting"),
            (39.4, 2_097_152, 2_097_152, "gpipe_laps", "three_batches"),
            (51.3, 1_966_080, 1_048_576, "pipeline_timetable"),
        ),
        *records(
            SHARDED,
            (27.4, 2_162_688, 4_521_984, "gpipe_sharded", "one_input_twice"),
            (28.4, 2_031_616, 4_521_984, "gpipe_sharded", "two_inputs_twice"),
            (29.7, 1_900_544, 4_718_592, "gpipe_sharded", "three_inputs_twice"),
            (31.3, 1_769_472, 5_111_808, "gpipe_sharded", "four_inputs_twice"),
            (35.5, 1_638_400, 5_898_240, "gpipe_sharded", "five_inputs_again"),
            (53.7, 1_507_328, 8_650_752, "gpipe_sharded", "no_input_kept"),
        ),
        *records(
            OWNERS_SEND,
            (21.3, 3_801_088, 4_718_592, "fsdp_owners_send", "eight_layers_once"),
            (23.8, 2_490_368, 6_291_456, "fsdp_owners_send", "eight_layers_two_gradients_wait"),
            (24.0, 2_359_296, 6_291_456, "fsdp_owners_send", "eight_layers_seven_twice"),
        ),
    ),
    (4, 4, 16): (
        *records(
            SHARDED_PIPELINE,
            (13.1, 770_048, 2_228_224, "pipeline_fsdp_gather", "once"),
            (13.7, 655_360, 2_719_744, "pipeline_fsdp_gather", "twice"),
        ),
        *records(
            REPEATED,
            (11.9, 770_048, 2_097_152, "pipeline_fsdp_gather", "once_forward_everywhere"),
            (12.5, 655_360, 2_588_672, "pipeline_fsdp_gather", "twice_forward_everywhere"),
        ),
        *records(OWNERS_SEND, (10.8, 819_200, 4_308_992, "pipeline_fsdp_owners_send")),
    ),
}
"""By layers, batches and ranks: timesteps, elements, traffic, the file in solutions/records and its variant. A file
solves the puzzle whose name it begins with, and may solve others."""
