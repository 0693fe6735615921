#include <fmt/format.h>

#include <cstring>

#include "op_case.h"
#include "ops/parts/parts.h"

namespace millrace::ops::cases {
namespace {

/// The table of `parts` micro-batches of `world` ranks, `rows` cells each and member, as words; the last moved no statistic.
Values table_of(int k, std::uint32_t parts, std::uint32_t world, int rows, int width) {
    const int words = part_words(width);
    std::vector<std::int32_t> all(static_cast<std::size_t>(k * rows * words) * world, -1);
    const FoldParams p{parts, world};
    for (int m = 0; m < k; ++m)
        for (std::uint32_t part = 0; part < parts; ++part) {
            std::int32_t* cell = all.data() + cell_of(p, k, rows, words, m, part);
            const PartSums sums{0.1 * part + m, 0.3 * part, 3 + part, part, part == 2 && m == 1 ? 1u : 0u, 0};
            std::memcpy(cell, &sums, sizeof sums);
            for (int c = 0; c < width; ++c) {
                const float moved =
                    part + 1 == parts ? kUnmoved : 0.125f * static_cast<float>(c) - 0.25f * static_cast<float>(part);
                std::memcpy(cell + sizeof sums / sizeof *cell + c, &moved, sizeof moved);
            }
        }
    return given(std::vector<double>(all.begin(), all.end()));
}

OpCase end(const std::string& note, int k, int width, const PartEndParams& params) {
    namespace at = part_end;
    OpCase c;
    c.name = fmt::format("part_end/{}/K{}_W{}", note, k, width);
    c.op = &part_end::kDef;
    c.params = params;
    c.members = k;
    c.states = sample_states(k);
    for (MemberState& state : c.states) {
        state.micro = params.rank + params.micro.world;  // its second part
        state.loss = 1.5;
        state.rows = 7;
        state.correct = 3;
    }
    c.state(at::state);
    if (width > 0) c.slot(at::running, Element::stat, k, 1, 1, width, uniform(-1, 1).with(width / 2, -0.0));
    return c.slot(at::table, Element::i32, k, 1, 3, part_words(width), constant(0));
}

OpCase fold(const std::string& note, int k, int g, int cols, FoldParams params, int rows, bool sums) {
    OpCase c;
    const int width = static_cast<int>(params.offset) + g * cols + 2;
    c.name = fmt::format("{}/{}/K{}_G{}_C{}", sums ? "fold_sums" : "fold_running", note, k, g, cols);
    c.op = sums ? &fold_sums::kDef : &fold_running::kDef;
    c.params = params;
    c.members = k;
    c.splits = false;  // a table holds the cells of all members of a rank
    c.states = sample_states(k);
    c.slot(fold_sums::all, Element::i32, k, 1, rows * static_cast<int>(params.world), part_words(width),
           table_of(k, params.count, params.world, rows, width));
    if (sums) return c.state(fold_sums::state);
    return c.slot(fold_running::value, Element::stat, k, g, 1, cols, uniform(-1, 1));
}

OpCase add(int k, int count) {
    OpCase c;
    c.name = fmt::format("add_part/K{}_P{}", k, count);
    c.op = &add_part::kDef;
    c.params = AddPartParams{};
    c.members = k;
    c.repeats = 2;
    c.slot(add_part::gradients, Element::stat, k, 1, 1, count, uniform(-1, 1));
    return c.slot(add_part::sums, Element::stat, k, 1, 1, count, uniform(-1, 1));
}

}  // namespace

void add_part_cases(std::vector<OpCase>& cases) {
    const MicroEndParams micro{4, 100, true, 3, 8, 5};
    cases.push_back(end("second_of_three_ranks", 2, 9, {micro, 1}));
    cases.push_back(end("without_statistics", 3, 0, {micro, 0}));
    cases.push_back(end("many_statistics", 1, 1031, {{4, 100, true, 1, 2, 3}, 0}));
    for (const bool sums : {true, false}) {
        cases.push_back(fold("one_rank", 2, 1, 7, {5, 1, 3, 0.1f}, 5, sums));
        cases.push_back(fold("three_ranks", 3, 2, 5, {7, 3, 4, 0.25f}, 3, sums));
        cases.push_back(fold("more_ranks_than_parts", 1, 1, 130, {2, 4, 0, 0.1f}, 1, sums));
    }
    for (const int count : {1, 1031, 70001}) cases.push_back(add(2, count));
    OpCase exchanged;
    exchanged.name = "exchange/alone";
    exchanged.op = &exchange::kDef;
    exchanged.params = ExchangeParams{};
    exchanged.members = 2;
    exchanged.splits = false;
    exchanged.slot(exchange::gradients, Element::stat, 2, 1, 1, 37, uniform(-1, 1));
    exchanged.slot(exchange::table, Element::i32, 2, 1, 3, 12, integers(-9, 9));
    exchanged.slot(exchange::all, Element::i32, 2, 1, 3, 12, poison());
    cases.push_back(exchanged);
}

}  // namespace millrace::ops::cases
