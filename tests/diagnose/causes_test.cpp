// Programs with several causes: which are told of, in which order, and at what cost.

#include <gtest/gtest.h>

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

constexpr unsigned kNone = 0, kFirst = 1, kSecond = 2, kThird = 4;

/// One step; bits of `cured` leave causes out.
using CausesBody = std::function<void(SimulatedProgram&, int step, unsigned cured)>;

Simulation run(const CausesBody& body, unsigned cured, SimulatedProgram::Traits traits = {}) {
    return simulate([&](SimulatedProgram& p, int step, bool) { body(p, step, cured); }, false, 60, traits);
}

std::string remarks_of(const Diagnosis& diagnosis) {
    std::string text;
    for (const std::string& remark : diagnosis.remarks) text += remark + "\n";
    return text;
}

TEST(Causes, WhatTheFirstCureTakesAlongIsNoSecondFinding) {
    // Small kernels come first and large ones later: the host launches ahead, unless it reads.
    SimulatedProgram::Traits traits;
    traits.operator_us = 20;
    const CausesBody body = [](SimulatedProgram& p, int, unsigned cured) {
        p.at(19);
        for (int i = 0; i < 60; ++i) p.launch("small" + std::to_string(i % 7), 4);
        train(p, {12, 400});
        p.at(31);
        if (!(cured & kFirst)) p.item();
    };
    const double truth = run(body, kNone, traits).step_ms - run(body, kFirst, traits).step_ms;
    const Diagnosis diagnosis = diagnose(run(body, kNone, traits).timeline);
    SCOPED_TRACE(fmt::format("truth {}\n{}", truth, told(diagnosis)));
    ASSERT_EQ(diagnosis.findings.size(), 1u);
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kHostSync);
    EXPECT_NEAR(diagnosis.findings.front().lost_ms_per_step, truth, 0.25 * truth);
    EXPECT_NE(remarks_of(diagnosis).find("costs only while the findings are not cured: launch-bound"), std::string::npos);
    const Diagnosis cured = diagnose(run(body, kFirst, traits).timeline);
    EXPECT_TRUE(cured.findings.empty()) << told(cured);
}

TEST(Causes, WhatHidesOnceStepsAreLaunchedAsAWholeIsToldOf) {
    // 2 ms of loading, then 8 ms of launching for 3 ms of kernels: launched as a whole, the kernels would hide the loading.
    SimulatedProgram::Traits traits;
    traits.operator_us = 20;
    const CausesBody body = [](SimulatedProgram& p, int, unsigned cured) {
        p.at({torch_line("utils/data/dataloader.py", "__next__"), user_line(14, "batches"), user_line(30)});
        if (!(cured & kFirst)) p.work(2'000);
        p.at(20);
        for (int i = 0; i < 300; ++i) p.launch("small" + std::to_string(i), 10);
    };
    const double truth = run(body, kNone, traits).step_ms - run(body, kFirst, traits).step_ms;
    const Diagnosis diagnosis = diagnose(run(body, kNone, traits).timeline);
    SCOPED_TRACE(fmt::format("truth {}\n{}", truth, told(diagnosis)));
    const Finding* launching = finding_of(diagnosis, Kind::kLaunchBound);
    const Finding* loading = finding_of(diagnosis, Kind::kLoaderWait);
    ASSERT_TRUE(launching && loading);
    EXPECT_GT(launching->lost_ms_per_step, loading->lost_ms_per_step);
    EXPECT_NEAR(loading->lost_ms_per_step, truth, 0.1 * truth);
}

TEST(Causes, ASecondCauseCostsWhatItsCureAddsToTheFirst) {
    const CausesBody body = [](SimulatedProgram& p, int step, unsigned cured) {
        p.at(35);
        p.upload(120e6, (cured & kFirst) != 0, static_cast<std::uint64_t>(step) + 1);
        train(p, {8, 300});
        p.at({user_line(14, "augment"), user_line(30)});
        if (!(cured & kSecond)) p.work(12'000);
    };
    const double sick = run(body, kNone).step_ms, first = run(body, kFirst).step_ms, both = run(body, kFirst | kSecond).step_ms;
    const Diagnosis diagnosis = diagnose(run(body, kNone).timeline);
    SCOPED_TRACE(fmt::format("{} -> {} -> {}\n{}", sick, first, both, told(diagnosis)));
    ASSERT_EQ(diagnosis.findings.size(), 2u);
    EXPECT_EQ(diagnosis.findings[0].kind, Kind::kPageableCopy);
    EXPECT_NEAR(diagnosis.findings[0].lost_ms_per_step, sick - first, 0.1 * (sick - first));
    EXPECT_EQ(diagnosis.findings[1].kind, Kind::kPythonWork);
    EXPECT_NEAR(diagnosis.findings[1].lost_ms_per_step, first - both, 0.1 * sick);
    EXPECT_EQ(diagnosis.findings[0].evidence.find("remains"), std::string::npos);
    EXPECT_NE(diagnosis.findings[1].evidence.find("remains once"), std::string::npos);
}

TEST(Causes, OfHostWorkAndAReadTheOneThatReturnsMoreComesFirst) {
    for (const double host : {3'000.0, 40'000.0}) {
        const CausesBody body = [=](SimulatedProgram& p, int, unsigned cured) {
            p.at({user_line(14, "augment"), user_line(30)});
            if (!(cured & kFirst)) p.work(host);
            train(p, {12, 400});
            p.at(31);
            if (!(cured & kSecond)) p.item();
        };
        const double sick = run(body, kNone).step_ms;
        const double work = sick - run(body, kFirst).step_ms, read = sick - run(body, kSecond).step_ms;
        const Diagnosis diagnosis = diagnose(run(body, kNone).timeline);
        SCOPED_TRACE(fmt::format("work {} read {}\n{}", work, read, told(diagnosis)));
        ASSERT_FALSE(diagnosis.findings.empty());
        const bool by_work = work > 1.2 * read;
        EXPECT_EQ(by_work, host > 10'000);
        EXPECT_EQ(diagnosis.findings.front().kind, by_work ? Kind::kPythonWork : Kind::kHostSync);
        EXPECT_NEAR(diagnosis.findings.front().lost_ms_per_step, by_work ? work : read, 0.1 * sick);
    }
}

TEST(Causes, CausesThatHideEachOtherShareWhatOnlyBothReturn) {
    const CausesBody body = [](SimulatedProgram& p, int, unsigned cured) {
        p.at({user_line(12, "choose_rows")});
        p.work(6'000);
        train(p, {12, 400});
        p.at(31);
        if (!(cured & kFirst)) p.item();
        p.at({torch_line("cuda/memory.py", "empty_cache"), user_line(33)});
        if (!(cured & kSecond)) p.free_memory();
    };
    const double sick = run(body, kNone).step_ms, truth = sick - run(body, kFirst | kSecond).step_ms;
    ASSERT_LT(sick - run(body, kFirst).step_ms, 0.1 * truth);
    ASSERT_LT(sick - run(body, kSecond).step_ms, 0.1 * truth);
    const Diagnosis diagnosis = diagnose(run(body, kNone).timeline);
    SCOPED_TRACE(fmt::format("truth {}\n{}", truth, told(diagnosis)));
    ASSERT_EQ(diagnosis.findings.size(), 2u);
    for (const Finding& finding : diagnosis.findings) {
        EXPECT_NEAR(finding.lost_ms_per_step, truth / 2, 0.15 * truth);
        EXPECT_NE(finding.evidence.find("only both cures together"), std::string::npos);
    }
    EXPECT_NE(finding_of(diagnosis, Kind::kHostSync), nullptr);
    EXPECT_NE(finding_of(diagnosis, Kind::kAllocatorChurn), nullptr);
}

TEST(Causes, AReadByItselfIsNotMixedWithTwoThatHideEachOther) {
    const CausesBody body = [](SimulatedProgram& p, int, unsigned cured) {
        p.at({user_line(12, "choose_rows")});
        p.work(5'000);
        train(p, {12, 400}, false);
        p.at(31);
        if (!(cured & kFirst)) p.item();
        p.at(32);
        p.launch("accuracy", 8);
        if (!(cured & kSecond)) p.item();
        p.at({user_line(13, "schedule")});
        p.work(4'000);
        for (int i = 0; i < 9; ++i) p.launch("second_network", 900);
        p.at(36);
        if (!(cured & kThird)) p.item();
    };
    const Diagnosis diagnosis = diagnose(run(body, kNone).timeline);
    SCOPED_TRACE(told(diagnosis));
    const double all = run(body, kNone).step_ms - run(body, kFirst | kSecond | kThird).step_ms;
    double sum = 0;
    std::size_t lines = 0;
    for (const Finding& finding : diagnosis.findings) {
        EXPECT_EQ(finding.kind, Kind::kHostSync);
        sum += finding.lost_ms_per_step;
        const bool pair = finding.where->line == 31 || finding.where->line == 32;
        EXPECT_EQ(finding.evidence.find("train.py:36"), std::string::npos);
        EXPECT_EQ(finding.evidence.find("They hide each other") != std::string::npos, pair);
        ++lines;
    }
    EXPECT_EQ(lines, 2u);
    EXPECT_NEAR(sum, all, 0.1 * all);
}

}  // namespace
}  // namespace millrace::diagnose
