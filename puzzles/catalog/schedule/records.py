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
            (6.0, 720_896, 983_040, "fsdp_layer_by_layer", "two_layers_one_full"),
        ),
    ),
    (6, 4, 4): (
        *records(DATA_PARALLEL, (16.3, 4_063_232, 2_359_296, "fsdp_layer_by_layer", "six_layers_six_replicated")),
        *records(
            SHARDED,
            (16.6, 3_735_552, 2_359_296, "fsdp_layer_by_layer", "six_layers_five_replicated"),
            (16.9, 3_538_944, 2_359_296, "fsdp_layer_by_layer", "six_layers_four_replicated"),
            (17.2, 3_342_336, 2_359_296, "fsdp_layer_by_layer", "six_layers_three_replicated"),
            (17.5, 3_145_728, 2_359_296, "fsdp_layer_by_layer", "six_layers_two_replicated"),
            (17.8, 2_949_120, 2_359_296, "fsdp_layer_by_layer", "six_layers_one_replicated"),
            (18.1, 2_752_512, 2_359_296, "fsdp_layer_by_layer", "six_layers_six_full"),
            (18.4, 2_555_904, 2_555_904, "fsdp_layer_by_layer", "six_layers_five_full"),
            (18.7, 2_359_296, 2_752_512, "fsdp_layer_by_layer", "six_layers_four_full"),
            (19.0, 2_162_688, 2_949_120, "fsdp_layer_by_layer", "six_layers_three_full"),
            (19.1, 2_621_440, 2_359_296, "fsdp_layer_by_layer", "six_layers_six_full_one_twice"),
            (19.3, 1_966_080, 3_145_728, "fsdp_layer_by_layer", "six_layers_two_full"),
            (19.4, 2_424_832, 2_555_904, "fsdp_layer_by_layer", "six_layers_five_full_one_twice"),
            (19.6, 1_769_472, 3_342_336, "fsdp_layer_by_layer", "six_layers_one_full"),
            (19.7, 2_228_224, 2_752_512, "fsdp_layer_by_layer", "six_layers_four_full_one_twice"),
            (20.0, 2_031_616, 2_949_120, "fsdp_layer_by_layer", "six_layers_three_full_one_twice"),
            (20.1, 2_490_368, 2_359_296, "fsdp_layer_by_layer", "six_layers_six_full_two_twice"),
            (20.3, 1_835_008, 3_145_728, "fsdp_layer_by_layer", "six_layers_two_full_one_twice"),
            (20.4, 2_293_760, 2_555_904, "fsdp_layer_by_layer", "six_layers_five_full_two_twice"),
            (20.7, 2_097_152, 2_752_512, "fsdp_layer_by_layer", "six_layers_four_full_two_twice"),
            (21.0, 1_900_544, 2_949_120, "fsdp_layer_by_layer", "six_layers_three_full_two_twice"),
            (21.1, 2_359_296, 2_359_296, "fsdp_layer_by_layer", "six_layers_six_full_three_twice"),
            (21.3, 1_703_936, 3_145_728, "fsdp_layer_by_layer", "six_layers_two_full_two_twice"),
            (21.4, 2_162_688, 2_555_904, "fsdp_layer_by_layer", "six_layers_five_full_three_twice"),
            (21.6, 1_572_864, 3_342_336, "fsdp_layer_by_layer", "six_layers_one_full_two_twice"),
            (21.7, 1_966_080, 2_752_512, "fsdp_layer_by_layer", "six_layers_four_full_three_twice"),
            (22.0, 1_769_472, 2_949_120, "fsdp_layer_by_layer", "six_layers_three_full_three_twice"),
            (22.2, 1_507_328, 3_735_552, "fsdp_layer_by_layer", "six_layers_one_full_two_twice_gathered_again"),
            (23.5, 1_376_256, 3_932_160, "fsdp_layer_by_layer", "six_layers_one_full_three_twice"),
            (20.6, 1_638_400, 3_342_336, "fsdp_one_activation_twice"),
        ),
        *records(
            OWNERS_SEND,
            (16.7, 2_490_368, 3_932_160, "fsdp_owners_send", "six_layers_two_twice"),
            (17.5, 2_228_224, 4_718_592, "fsdp_owners_send", "six_layers_four_twice"),
        ),
    ),
    (8, 4, 4): (
        *records(SHARDED_PIPELINE, (27.6, 3_276_800, 1_310_720, "pipeline_fsdp_replicas", "two_stages")),
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
            (24.3, 3_670_016, 3_145_728, "fsdp_layer_by_layer", "eight_layers_eight_full"),
            (24.6, 3_473_408, 3_342_336, "fsdp_layer_by_layer", "eight_layers_seven_full"),
            (24.9, 3_276_800, 3_538_944, "fsdp_layer_by_layer", "eight_layers_six_full"),
            (25.2, 3_080_192, 3_735_552, "fsdp_layer_by_layer", "eight_layers_five_full"),
            (25.3, 3_538_944, 3_145_728, "fsdp_layer_by_layer", "eight_layers_eight_full_one_twice"),
            (25.5, 2_883_584, 3_932_160, "fsdp_layer_by_layer", "eight_layers_four_full"),
            (25.6, 3_342_336, 3_342_336, "fsdp_layer_by_layer", "eight_layers_seven_full_one_twice"),
            (25.8, 2_686_976, 4_128_768, "fsdp_layer_by_layer", "eight_layers_three_full"),
            (25.9, 3_145_728, 3_538_944, "fsdp_layer_by_layer", "eight_layers_six_full_one_twice"),
            (26.1, 2_490_368, 4_325_376, "fsdp_layer_by_layer", "eight_layers_two_full"),
            (26.2, 2_949_120, 3_735_552, "fsdp_layer_by_layer", "eight_layers_five_full_one_twice"),
            (26.3, 3_407_872, 3_145_728, "fsdp_layer_by_layer", "eight_layers_eight_full_two_twice"),
            (26.4, 2_293_760, 4_521_984, "fsdp_layer_by_layer", "eight_layers_one_full"),
            (26.5, 2_752_512, 3_932_160, "fsdp_layer_by_layer", "eight_layers_four_full_one_twice"),
            (26.6, 3_211_264, 3_342_336, "fsdp_layer_by_layer", "eight_layers_seven_full_two_twice"),
            (26.8, 2_555_904, 4_128_768, "fsdp_layer_by_layer", "eight_layers_three_full_one_twice"),
            (26.9, 3_014_656, 3_538_944, "fsdp_layer_by_layer", "eight_layers_six_full_two_twice"),
            (27.1, 2_359_296, 4_325_376, "fsdp_layer_by_layer", "eight_layers_two_full_one_twice"),
            (27.2, 2_818_048, 3_735_552, "fsdp_layer_by_layer", "eight_layers_five_full_two_twice"),
            (27.3, 3_276_800, 3_145_728, "fsdp_layer_by_layer", "eight_layers_eight_full_three_twice"),
            (27.5, 2_621_440, 3_932_160, "fsdp_layer_by_layer", "eight_layers_four_full_two_twice"),
            (27.6, 3_080_192, 3_342_336, "fsdp_layer_by_layer", "eight_layers_seven_full_three_twice"),
            (27.8, 2_424_832, 4_128_768, "fsdp_layer_by_layer", "eight_layers_three_full_two_twice"),
            (27.9, 2_883_584, 3_538_944, "fsdp_layer_by_layer", "eight_layers_six_full_three_twice"),
            (28.1, 2_228_224, 4_325_376, "fsdp_layer_by_layer", "eight_layers_two_full_two_twice"),
            (28.2, 2_686_976, 3_735_552, "fsdp_layer_by_layer", "eight_layers_five_full_three_twice"),
            (28.3, 3_145_728, 3_145_728, "fsdp_layer_by_layer", "eight_layers_eight_full_four_twice"),
            (28.5, 2_490_368, 3_932_160, "fsdp_layer_by_layer", "eight_layers_four_full_three_twice"),
            (28.6, 2_949_120, 3_342_336, "fsdp_layer_by_layer", "eight_layers_seven_full_four_twice"),
            (28.8, 2_293_760, 4_128_768, "fsdp_layer_by_layer", "eight_layers_three_full_three_twice"),
            (28.9, 2_752_512, 3_538_944, "fsdp_layer_by_layer", "eight_layers_six_full_four_twice"),
            (29.1, 2_097_152, 4_325_376, "fsdp_layer_by_layer", "eight_layers_two_full_three_twice"),
            (29.2, 2_555_904, 3_735_552, "fsdp_layer_by_layer", "eight_layers_five_full_four_twice"),
            (29.3, 3_014_656, 3_145_728, "fsdp_layer_by_layer", "eight_layers_eight_full_five_twice"),
            (29.4, 1_966_080, 4_521_984, "fsdp_layer_by_layer", "eight_layers_one_full_three_twice"),
            (29.5, 2_359_296, 3_932_160, "fsdp_layer_by_layer", "eight_layers_four_full_four_twice"),
            (29.6, 2_818_048, 3_342_336, "fsdp_layer_by_layer", "eight_layers_seven_full_five_twice"),
            (29.8, 2_162_688, 4_128_768, "fsdp_layer_by_layer", "eight_layers_three_full_four_twice"),
            (29.9, 2_621_440, 3_538_944, "fsdp_layer_by_layer", "eight_layers_six_full_five_twice"),
            (30.1, 2_031_616, 4_325_376, "fsdp_layer_by_layer", "eight_layers_two_full_four_twice"),
            (30.2, 2_424_832, 3_735_552, "fsdp_layer_by_layer", "eight_layers_five_full_five_twice"),
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
            (12.3, 786_432, 917_504, "pipeline_fsdp_replicas", "one_owner_first"),
            (12.5, 786_432, 655_360, "pipeline_fsdp_replicas", "two_owners_first"),
            (13.1, 720_896, 655_360, "pipeline_fsdp_replicas", "every_replica"),
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
