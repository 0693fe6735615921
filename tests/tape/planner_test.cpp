#include "tape/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/philox.h"

namespace millrace::tape {
namespace {

Buffer buffer(std::int64_t bytes, int first, int last, Role role = Role::activation) {
    Buffer b;
    b.dtype = tensor::DType::u8;
    b.elements = bytes;
    b.role = role;
    b.first = first;
    b.last = last;
    return b;
}

/// Walks the records and looks for two buffers in the same bytes.
void expect_no_collision(const std::vector<Buffer>& buffers, const MemoryPlan& plan) {
    std::map<int, std::vector<std::pair<std::int64_t, std::int64_t>>> held;
    for (const Buffer& b : buffers) {
        if (b.first < 0) continue;
        ASSERT_GE(b.offset, 0);
        ASSERT_LE(b.offset + b.bytes(), plan.bytes);
        if (b.bytes() == 0) continue;
        for (int record = b.first; record <= b.last; ++record) held[record].emplace_back(b.offset, b.offset + b.bytes());
    }
    for (auto& [record, spans] : held) {
        std::sort(spans.begin(), spans.end());
        for (std::size_t i = 1; i < spans.size(); ++i)
            ASSERT_LE(spans[i - 1].second, spans[i].first) << "two buffers share bytes at record " << record;
    }
}

TEST(Planner, NothingNeedsNothing) {
    const MemoryPlan plan = plan_memory({});
    EXPECT_EQ(plan.bytes, 0);
    EXPECT_EQ(plan.peak_record, -1);
    EXPECT_NE(plan.text().find("nothing"), std::string::npos);
}

TEST(Planner, BuffersNobodyTouchesHaveNoPlace) {
    std::vector<Buffer> buffers{buffer(100, -1, -1), buffer(10, 0, 0)};
    const MemoryPlan plan = plan_memory(buffers);
    EXPECT_EQ(buffers[0].offset, -1);
    EXPECT_EQ(plan.bytes, 256);
}

TEST(Planner, ChainReusesMemory) {
    // Record r reads buffer r - 1 and writes buffer r: two are alive at a time.
    std::vector<Buffer> buffers;
    for (int r = 0; r < 20; ++r) buffers.push_back(buffer(1024, r, r + 1));
    const MemoryPlan plan = plan_memory(buffers);
    EXPECT_EQ(plan.bytes, 2 * 1024);
    EXPECT_EQ(plan.without_reuse, 20 * 1024);
    expect_no_collision(buffers, plan);
}

TEST(Planner, SmallBuffersFillTheHolesOfLargeOnes) {
    // The large ones stand side by side at record 1; the small one fits where the first has gone.
    std::vector<Buffer> buffers{buffer(256, 5, 6), buffer(4096, 0, 1), buffer(8192, 1, 6)};
    EXPECT_EQ(plan_memory(buffers).bytes, 4096 + 8192);
    EXPECT_EQ(buffers[0].offset, buffers[1].offset);
}

TEST(Planner, OffsetsAreAlignedAndZeroBytesFitAnywhere) {
    for (std::int64_t alignment : {1, 64, 256, 4096}) {
        std::vector<Buffer> buffers{buffer(1, 0, 9), buffer(0, 0, 9), buffer(257, 0, 9), buffer(0, 3, 3), buffer(13, 2, 4)};
        const MemoryPlan plan = plan_memory(buffers, alignment);
        for (const Buffer& b : buffers) EXPECT_EQ(b.offset % alignment, 0);
        EXPECT_EQ(plan.bytes % alignment, 0);
        expect_no_collision(buffers, plan);
    }
    std::vector<Buffer> empty{buffer(0, 0, 3)};
    EXPECT_EQ(plan_memory(empty).bytes, 0);
    EXPECT_EQ(empty[0].offset, 0);
}

TEST(Planner, PeakIsWhereMostBytesAreAliveByRole) {
    // By record: 0: 100 + 7, 1: 100 + 50 + 7, 2: 50 + 30 + 7, 3: 30 + 90 + 7, 4: 90 + 7.
    std::vector<Buffer> buffers{buffer(100, 0, 1), buffer(50, 1, 2, Role::saved), buffer(30, 2, 3),
                                buffer(90, 3, 4, Role::scratch), buffer(7, 0, 4, Role::saved)};
    const MemoryPlan plan = plan_memory(buffers);
    EXPECT_EQ(plan.peak_record, 1);
    EXPECT_EQ(plan.peak_by_role[static_cast<std::size_t>(Role::activation)], 100);
    EXPECT_EQ(plan.peak_by_role[static_cast<std::size_t>(Role::saved)], 57);
    EXPECT_EQ(plan.peak_by_role[static_cast<std::size_t>(Role::scratch)], 0);
    EXPECT_NE(plan.text().find("record 1"), std::string::npos);
    EXPECT_NE(plan.text().find("saved"), std::string::npos);
    EXPECT_EQ(plan.text().find("scratch"), std::string::npos);
}

TEST(Planner, RandomPlansNeverCollideAndAreReproducible) {
    std::int64_t planned = 0, plain = 0;
    for (std::uint32_t trial = 0; trial < 400; ++trial) {
        std::uint64_t draws = 0;
        auto below = [&](std::uint32_t n) { return static_cast<int>(base::random_bits(5, trial, 0, 0, draws++) % n); };
        const int records = 1 + below(40);
        const std::int64_t alignment = std::int64_t{1} << below(10);
        std::vector<Buffer> buffers;
        for (int i = below(50); i >= 0; --i) {
            const int first = below(static_cast<std::uint32_t>(records));
            buffers.push_back(buffer(below(5) == 0 ? 0 : below(5000), first, std::min(records - 1, first + below(8))));
        }
        auto again = buffers;
        const MemoryPlan plan = plan_memory(buffers, alignment);
        ASSERT_NO_FATAL_FAILURE(expect_no_collision(buffers, plan)) << "trial " << trial;
        ASSERT_LE(plan.bytes, plan.without_reuse);
        plan_memory(again, alignment);
        for (std::size_t i = 0; i < buffers.size(); ++i) ASSERT_EQ(buffers[i].offset, again[i].offset);
        planned += plan.bytes;
        plain += plan.without_reuse;
    }
    EXPECT_LT(planned, plain * 2 / 3) << "memory is hardly reused";
}

TEST(Role, EveryRoleHasANameOfItsOwn) {
    for (int a = 0; a < kRoleCount; ++a)
        for (int b = 0; b < a; ++b) EXPECT_STRNE(name_of(static_cast<Role>(a)), name_of(static_cast<Role>(b)));
}

}  // namespace
}  // namespace millrace::tape
