#include "diagnose/reading/stack_builder.h"

#include <gtest/gtest.h>

namespace millrace::diagnose {
namespace {

Call call_at(Time begin, std::uint32_t thread) {
    Call call;
    call.begin = begin;
    call.end = begin + 1;
    call.process = 1;
    call.thread = thread;
    return call;
}

TEST(StackBuilder, CountsNotesOnTheThreadOfTheCallThatFollowsThem) {
    using Kind = StackBuilder::SpanKind;
    StackBuilder builder;
    builder.add(0, 90, 1, 1, "t.py(1): f", Kind::kPython);
    builder.add(1, 9, 1, 1, "t.py(2): f", Kind::kWholeStack);  // of the operator: no note of its own
    builder.add(1, 9, 1, 1, "aten::add", Kind::kNative);
    builder.add(2, 60, 1, 2, "aten::mul", Kind::kNative);
    builder.add(20, 29, 1, 2, "aten::neg", Kind::kNative);
    builder.add(30, 31, 1, 1, "aten::cos", Kind::kNative);
    std::vector<Call> calls{call_at(4, 1), call_at(6, 1), call_at(22, 2), call_at(23, 3)};
    calls[1].notes = 7;  // as an export of ours said
    std::vector<Stack> stacks;
    EXPECT_TRUE(builder.build(calls, stacks));
    EXPECT_EQ(calls[0].notes, 2u);
    EXPECT_EQ(calls[1].notes, 7u);
    EXPECT_EQ(calls[2].notes, 2u);
    EXPECT_EQ(calls[3].notes, 0u);
}

}  // namespace
}  // namespace millrace::diagnose
