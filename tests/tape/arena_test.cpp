#include <gtest/gtest.h>

#include "ops/pointwise/pointwise.h"
#include "tape/program.h"
#include "tape/tape_rig.h"

namespace millrace::tape {
namespace {

TEST(Arena, IsAsLargeAsTheLargestProgram) {
    TapeRig rig;
    rig.allocate();
    Arena arena(*rig.backend);
    std::vector<std::int64_t> sizes;
    for (std::int32_t rows : {3, 300, 30}) {
        Builder builder(*rig.store, {});
        const Value x = builder.activation(rows, 10, "x", false);
        builder.append({&ops::fill::kDef, ops::FillParams{0}, {x.view}, 0, "fill"});
        sizes.push_back(Program("p", *rig.store, std::move(builder), arena).plan().bytes);
    }
    EXPECT_EQ(arena.size().activations, sizes[1]);
    EXPECT_GT(sizes[1], sizes[2]);
}

}  // namespace
}  // namespace millrace::tape
