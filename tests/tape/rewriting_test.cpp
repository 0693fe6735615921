// Rewrites of a program's records, with some that are registered here: which records they take, and what a fused record does.

#include "tape/planner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/fused.h"
#include "tape/tape_rig.h"

namespace millrace::tape {
namespace {

/// A copy and the next record that reads it, if that is a copy too; only of records that are named so.
ops::Match match_copies(const ops::Window& records) {
    if (!records[0].record->layer.starts_with("joined")) return {};
    const auto next = records.next_reader(records[0][ops::copy::out], 0);
    if (!next || records[*next].record->op != &ops::copy::kDef) return {};
    return {.records = {0, *next}, .inner = {{0, ops::copy::out}}};
}
/// Any record alone that is named so: it begins with no operator in particular and comes last.
ops::Match match_alone(const ops::Window& records) {
    return ops::Match::first(records[0].record->layer == "alone" || records[0].record->layer == "joined alone" ? 1 : 0);
}
/// Two copies one after the other that are named so: the first disappears, the second reads what that did.
ops::Match match_skipped(const ops::Window& records) {
    if (records[0].record->layer != "before" || records.size() < 3 || records[1].record->layer != "skipped") return {};
    ops::Record last = *records[2].record;
    last.slots[ops::copy::in] = records[1].record->slots[ops::copy::in];
    return {.records = {1, 2}, .instead = {std::nullopt, last}};
}
ops::Match skipped_on_cpu(const ops::cpu::Context&, const ops::Window& records) { return match_skipped(records); }
ops::Match copies_on_cpu(const ops::cpu::Context&, const ops::Window& records) { return match_copies(records); }
ops::Match alone_on_cpu(const ops::cpu::Context&, const ops::Window& records) { return match_alone(records); }

const ops::OpDef kCopies(ops::fused_traits("two_copies")), kAlone(ops::fused_traits("alone"));
const ops::Rewrite kCopiesRewrite({.name = "two_copies",
                                   .fused = &kCopies,
                                   .begins = &ops::copy::kDef,
                                   .priority = 1,
                                   .cpu = copies_on_cpu,
                                   .ref = match_copies}),
    kAloneRewrite({.name = "alone", .fused = &kAlone, .cpu = alone_on_cpu, .ref = match_alone}),
    kSkippedRewrite({.name = "skipped", .cpu = skipped_on_cpu, .ref = match_skipped});

class Rewriting : public ::testing::TestWithParam<Place> {
protected:
    Rewriting() : rig(GetParam()) {
        in = rig.store->add_data("in", rig.real(), 2, 3);
        out = rig.store->add_data("out", rig.real(), 2, 3);
        other = rig.store->add_data("other", rig.real(), 2, 3);
        flag = rig.store->add_data("flag", tensor::DType::i32, 1, 1);
        rig.allocate();
        builder.emplace(*rig.store, BuildOptions{.training = false});
        middle = builder->buffer(1, 2, 3, rig.real(), Role::activation, "middle");
    }
    void copy(const tensor::View& from, const tensor::View& to, const char* name = "joined") {
        ops::Record record = copy_record(from, to);
        record.layer = name;
        builder->append(std::move(record));
    }
    std::vector<std::string> names() {
        rig.prepare(std::move(*builder));
        std::vector<std::string> found;
        for (const ops::Record& record : rig.program->records()) found.emplace_back(record.op->name);
        return found;
    }
    std::vector<double> run() {
        rig.program->write(in, {1, 2, 3, 4, 5, 6});
        rig.program->run();
        return rig.program->read(out);
    }
    using Names = std::vector<std::string>;

    TapeRig rig;
    std::optional<Builder> builder;
    tensor::View in, out, other, flag, middle;
};

TEST_P(Rewriting, JoinsWhatIsReadNextPastRecordsThatDoNotMind) {
    copy(in, middle);
    copy(in, other, "between");
    copy(middle, out);
    EXPECT_EQ(names(), (Names{"two_copies", "copy"}));
    EXPECT_EQ(run(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(rig.program->plan().bytes, 0) << "what only the two use is in no plan";
    const ops::Record& fused = rig.program->records()[0];
    EXPECT_EQ(fused.slot_count(), 2);
    EXPECT_FALSE(fused.writes(0));
    EXPECT_TRUE(fused.writes(1) && !fused.reads(1));
    const std::string listing = rig.program->listing();
    for (const char* part : {"two_copies joins 2", "joined", "between"})
        EXPECT_NE(listing.find(part), std::string::npos) << listing;
}

TEST_P(Rewriting, StandsWhereItsLastRecordDoesIfItMust) {
    copy(in, middle);
    copy(other, out, "between");  // the second copy overwrites it, so that it cannot move up
    copy(middle, out);
    EXPECT_EQ(names(), (Names{"copy", "two_copies"}));
    EXPECT_EQ(run(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST_P(Rewriting, ChangesRecordsOneByOne) {
    copy(in, other, "before");
    copy(in, middle, "skipped");
    copy(middle, out, "last");
    copy(in, other, "behind");
    EXPECT_EQ(names(), (Names{"copy", "copy", "copy"}));
    EXPECT_EQ(run(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST_P(Rewriting, IsLeftWhereTheOrderMatters) {
    copy(in, middle);
    copy(out, in, "between");  // neither can the first copy move down nor the second up
    copy(other, out, "between");
    copy(middle, out);
    EXPECT_EQ(names(), (Names{"copy", "copy", "copy", "copy"}));
}

TEST_P(Rewriting, IsLeftWhereAnotherRecordReadsWhatIsInner) {
    copy(in, middle);
    copy(middle, out);
    copy(middle, other, "reads it");
    EXPECT_EQ(names(), (Names{"copy", "copy", "copy"}));
}

TEST_P(Rewriting, CrossesNoBorderOfASection) {
    copy(in, middle);
    builder->close_section();
    copy(middle, out);
    builder->close_section(2);
    EXPECT_EQ(names(), (Names{"copy", "copy"}));
}

TEST_P(Rewriting, CrossesNoBorderOfARegion) {
    copy(in, middle);
    builder->only_if(flag);
    copy(middle, out);
    copy(in, middle);
    copy(middle, other);
    builder->only_if({});
    EXPECT_EQ(names(), (Names{"copy", "copy", "two_copies"}));
    rig.program->write(flag, {1});
    EXPECT_EQ(run(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(rig.program->read(other), (std::vector<double>{1, 2, 3, 4, 5, 6}));
    rig.program->write(flag, {0});
    rig.program->write(out, std::vector<double>(6, 7));
    EXPECT_EQ(run(), std::vector<double>(6, 7)) << "a fused record keeps its condition";
}

TEST_P(Rewriting, HigherPriorityGoesFirstAndAnyOperatorMayBegin) {
    copy(in, middle, "joined alone");
    copy(middle, out);
    builder->append({&ops::fill::kDef, ops::FillParams{7}, {other}, 0, "alone"});
    EXPECT_EQ(names(), (Names{"two_copies", "alone"}));
    (void)run();
    EXPECT_EQ(rig.program->read(other), std::vector<double>(6, 7));
}

TEST_P(Rewriting, CheckedRunsNameThePartThatWrote) {
    copy(in, middle);
    copy(middle, out, "joined second");
    ASSERT_EQ(names(), Names{"two_copies"});
    rig.program->write(in, {1, 2, 3, 4, std::numeric_limits<double>::infinity(), 6});
    const auto found = rig.program->run_checked();
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->op, "copy");
    EXPECT_EQ(found->layer, "joined second");
    EXPECT_EQ(found->slot, "out");
    EXPECT_EQ(found->row, 1);
    EXPECT_EQ(found->col, 1);
}

INSTANTIATE_TEST_SUITE_P(Places, Rewriting, ::testing::Values(kRefPlace, kCpuPlace), [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace millrace::tape
