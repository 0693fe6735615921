// Which memory operands share, and who reads and writes it when.

#include "ops/uses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "ops/pointwise/pointwise.h"

namespace millrace::ops {
namespace {

tensor::View view_of(tensor::BufferId buffer, std::int64_t offset, std::array<std::int32_t, 4> shape,
                     std::array<std::int64_t, 3> strides) {
    tensor::View v;
    v.buffer = buffer;
    v.offset = offset;
    v.k = shape[0], v.g = shape[1], v.rows = shape[2], v.cols = shape[3];
    v.stride_k = strides[0], v.stride_g = strides[1], v.stride_row = strides[2];
    return v;
}

std::set<std::int64_t> elements_of(const tensor::View& v) {
    std::set<std::int64_t> all;
    for (int k = 0; k < v.k; ++k)
        for (int g = 0; g < v.g; ++g)
            for (int r = 0; r < v.rows; ++r)
                for (int c = 0; c < v.cols; ++c) all.insert(v.offset + k * v.stride_k + g * v.stride_g + r * v.stride_row + c);
    return all;
}

TEST(Box, MeetsAndCoversAsTheElementsDo) {
    std::mt19937 random(7);
    const auto upto = [&](int most) { return static_cast<std::int32_t>(random() % static_cast<unsigned>(most + 1)); };
    int met = 0, apart = 0, covered = 0, missed = 0;
    for (int i = 0; i < 20000; ++i) {
        const auto draw = [&] {
            // Members of an arena, groups beside or below each other, windows of rows and columns, one matrix for all.
            const std::int64_t width = upto(1) == 0 ? 12 : 1 + upto(11);
            const std::int64_t strides[] = {0, 4, 24, width * (1 + upto(3)), upto(60)};
            return view_of(0, upto(70), {1 + upto(2), 1 + upto(2), upto(3), upto(5)}, {120 * upto(1), strides[upto(4)], width});
        };
        const tensor::View a = draw(), b = draw();
        const std::set<std::int64_t> left = elements_of(a), right = elements_of(b);
        const bool meet = std::ranges::any_of(left, [&](std::int64_t e) { return right.contains(e); });
        const Box one(stand_in(a)), two(stand_in(b));
        ASSERT_EQ(one.meets(two), meet) << i;
        ASSERT_EQ(two.meets(one), meet) << i;
        const bool inside = std::ranges::includes(left, right);
        ASSERT_LE(one.covers(two), inside) << i;
        (meet ? met : apart) += 1;
        if (inside && !right.empty()) (one.covers(two) ? covered : missed) += 1;
    }
    EXPECT_GT(met, 1000);
    EXPECT_GT(apart, 1000);
    EXPECT_GT(covered, 4 * missed) << missed;
}

TEST(Box, TellsColumnsOfOneMatrixApart) {
    const tensor::View matrix = view_of(3, 0, {1, 1, 1 << 20, 48}, {0, 0, 48});
    EXPECT_FALSE(Box(stand_in(matrix.columns(0, 16))).meets(Box(stand_in(matrix.columns(16, 32)))));
    EXPECT_TRUE(Box(stand_in(matrix.columns(0, 17))).meets(Box(stand_in(matrix.columns(16, 32)))));
    EXPECT_TRUE(Box(stand_in(matrix)).covers(Box(stand_in(matrix.columns(16, 32).split_columns(4)))));
    const tensor::View other = view_of(4, 0, {1, 1, 1, 1}, {0, 0, 0});
    EXPECT_FALSE(Box(stand_in(matrix)).meets(Box(stand_in(other))));
}

/// Rows of copies and sums over buffers of 6 elements; buffer 0 is kept.
struct Lines {
    void copy(const tensor::View& in, const tensor::View& out) {
        records.push_back({&ops::copy::kDef, CopyParams{}, {in, out}, 0, "copy"});
    }
    void add(const tensor::View& a, const tensor::View& out, bool accumulate) {
        records.push_back({&ops::add::kDef, AddParams{}, {}, accumulate ? 1u << ops::add::out : 0, "add"});
        records.back().slots[ops::add::a] = a;
        records.back().slots[ops::add::out] = out;
    }
    [[nodiscard]] Uses uses() const {
        std::vector<Bound> bound;
        for (const Record& record : records) bound.push_back(stand_in(record));
        std::vector<Uses::Block> blocks;
        for (const tensor::BufferId id : {2, 0, 1, 3}) blocks.push_back({stand_in(buffer(id)).data, 24, id == 0});
        return Uses(bound, sections, blocks);
    }
    static tensor::View buffer(tensor::BufferId id) { return view_of(id, 0, {1, 1, 2, 3}, {6, 6, 3}); }
    static tensor::Operand operand(tensor::BufferId id) { return stand_in(buffer(id)); }

    std::vector<Record> records;
    std::vector<Section> sections;
};

TEST(Uses, FollowReadersAndWriters) {
    Lines lines;
    lines.copy(Lines::buffer(0), Lines::buffer(1));                              // 0
    lines.copy(Lines::buffer(1), Lines::buffer(2));                              // 1
    lines.copy(Lines::buffer(0).columns(0, 2), Lines::buffer(1).columns(0, 2));  // 2: a part alone
    lines.add(Lines::buffer(2), Lines::buffer(1), true);                         // 3: adds to it
    lines.add(Lines::buffer(2), Lines::buffer(1), false);                        // 4: overwrites it
    lines.copy(Lines::buffer(1), Lines::buffer(0));                              // 5
    const Uses uses = lines.uses();
    EXPECT_EQ(uses.next_reader(Lines::operand(1), 0), 1u);
    EXPECT_EQ(uses.last_writer(Lines::operand(1), 4), 3u);
    EXPECT_EQ(uses.last_writer(Lines::operand(1), 2), 0u);
    EXPECT_FALSE(uses.last_writer(Lines::operand(0), 5).has_value());
    EXPECT_TRUE(uses.is_written(Lines::operand(1), 1, 3));
    EXPECT_FALSE(uses.is_written(stand_in(Lines::buffer(1).columns(2, 1)), 1, 3)) << "the column beside";
    EXPECT_FALSE(uses.is_written(Lines::operand(2), 2, 6));
    EXPECT_TRUE(uses.is_read(Lines::operand(1), 2)) << "by the sum that adds to it";
    EXPECT_FALSE(uses.is_read(Lines::operand(1), 3)) << "overwritten before it is read";
    EXPECT_TRUE(uses.is_read(Lines::operand(1), 4));
    EXPECT_FALSE(uses.is_read(Lines::operand(2), 4));
    EXPECT_FALSE(uses.outlives(Lines::operand(1), 5));
    EXPECT_TRUE(uses.outlives(Lines::operand(0), 5)) << "kept";
    const auto depend = [&](std::size_t a, std::size_t b) {
        return ops::depend(stand_in(lines.records[a]), stand_in(lines.records[b]));
    };
    EXPECT_TRUE(depend(0, 1) && depend(0, 2) && depend(1, 3) && depend(5, 0));
    EXPECT_TRUE(depend(1, 2)) << "one reads what the other writes";
    lines.copy(Lines::buffer(2), Lines::buffer(3));
    EXPECT_FALSE(depend(6, 5));
    EXPECT_EQ(uses.lifetime(2)->first, 0u) << "blocks are numbered as they were given: buffer 1";
    EXPECT_EQ(uses.lifetime(2)->last, 5u);
    EXPECT_FALSE(uses.lifetime(3).has_value());
}

TEST(Uses, AWriteThatMayBeSkippedOverwritesNothing) {
    Lines lines;
    lines.copy(Lines::buffer(0), Lines::buffer(1));
    lines.copy(Lines::buffer(0), Lines::buffer(1));
    lines.copy(Lines::buffer(1), Lines::buffer(2));
    EXPECT_FALSE(lines.uses().is_read(Lines::operand(1), 0));
    lines.records[1].condition = Lines::buffer(3);
    EXPECT_TRUE(lines.uses().is_read(Lines::operand(1), 0));
}

TEST(Uses, RepeatedSectionsReadWhatTheRoundBeforeLeft) {
    Lines lines;
    lines.copy(Lines::buffer(0), Lines::buffer(3));  // 0
    lines.copy(Lines::buffer(1), Lines::buffer(2));  // 1: reads what 2 left
    lines.copy(Lines::buffer(3), Lines::buffer(1));  // 2
    lines.copy(Lines::buffer(0), Lines::buffer(2));  // 3
    lines.sections = {{0, 1, 1}, {1, 2, 1}, {3, 1, 1}};
    EXPECT_FALSE(lines.uses().is_read(Lines::operand(1), 2));
    lines.sections[1].repeat = 2;
    const Uses uses = lines.uses();
    EXPECT_TRUE(uses.is_read(Lines::operand(1), 2));
    EXPECT_FALSE(uses.is_read(Lines::operand(2), 1));
    EXPECT_EQ(uses.lifetime(3)->last, 2u) << "what came before the section is needed in its last round";
    EXPECT_EQ(uses.lifetime(2)->first, 1u);
    EXPECT_EQ(uses.lifetime(2)->last, 2u);
}

}  // namespace
}  // namespace millrace::ops
