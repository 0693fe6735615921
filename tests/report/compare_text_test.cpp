#include "base/json.h"
#include "report/compare_report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "report/made_up_diagnosis.h"

namespace millrace::report {
namespace {

using Json = nlohmann::json;

std::vector<diagnose::Block> blocks(std::size_t count, double steps) {
    std::vector<diagnose::Block> made;
    for (std::size_t at = 0; at < count; ++at) {
        const auto begin = static_cast<diagnose::Time>(at) * 500'000'000;
        made.push_back({begin, begin + 500'000'000, steps + 0.01 * static_cast<double>(at * 7 % 5)});
    }
    return made;
}

ComparisonReport made(std::size_t count, double before, double after) {
    ComparisonReport report;
    const diagnose::Diagnosis sick = sick_diagnosis(), healthy = healthy_diagnosis();
    report.before = {"sick", blocks(count, before), sick.busy_share, sick.breakdown_ms};
    report.after = {"cured", blocks(count, after), healthy.busy_share, healthy.breakdown_ms};
    report.comparison = diagnose::compare(report.before, report.after);
    return report;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(CompareText, BetterSaysByHowMuchAndFromWhat) {
    const std::string text = compare_text(made(20, 18, 21.5), {});
    EXPECT_TRUE(text.starts_with("better: 19.4 % more steps per second\n")) << text;
    EXPECT_TRUE(holds(text, "steps per second                 36.04           43.04       +19.4 %")) << text;
    EXPECT_TRUE(holds(text, "GPU busy                        79.0 %          99.0 %  +20.0 points"));
    EXPECT_TRUE(holds(text, "  host waits for GPU             4.480           0.000        -4.480"));
    EXPECT_TRUE(holds(text, "20 and 20 blocks of at least 0.5 s"));
    EXPECT_TRUE(holds(text, "p = "));
    EXPECT_FALSE(holds(text, "communicating"));
}

TEST(CompareText, WorseAndNoDifferenceAndTooFew) {
    EXPECT_TRUE(compare_text(made(20, 21.5, 18), {}).starts_with("worse: 16.3 % fewer steps per second\n"));
    EXPECT_TRUE(compare_text(made(20, 20, 20), {}).starts_with("no difference: +0.0 % is within the noise\n"));
    EXPECT_TRUE(compare_text(made(20, 20, 20.2), {}).starts_with("no difference: +1.0 % is less than the least effect of 2 %"));
    const std::string few = compare_text(made(4, 20, 40), {});
    EXPECT_TRUE(few.starts_with("no difference shown: too few blocks of speed, +99.9 % may be noise\n")) << few;
    EXPECT_TRUE(holds(few, "Record each run at least 1.5 s longer."));
    const std::string none = compare_text({}, {});
    EXPECT_TRUE(holds(none, "not measured"));
    EXPECT_FALSE(holds(none, "GPU busy"));
}

TEST(CompareText, GateSaysHowItWent) {
    ComparisonReport report = made(20, 21.5, 18);
    report.gate = SpeedGate{0.05, true};
    EXPECT_TRUE(holds(compare_text(report, {}), "gate: failed, slower by more than 5 %"));
    report.gate->failed = false;
    EXPECT_TRUE(holds(compare_text(report, {}), "gate: passed"));
    report = made(3, 21.5, 18);
    report.gate = SpeedGate{0.05, false};
    EXPECT_TRUE(holds(compare_text(report, {}), "gate: cannot tell"));
}

TEST(CompareText, AGateThatCannotFailSaysSo) {
    // A program whose pace the host sets: one recording of each side shows no small loss.
    ComparisonReport report = made(20, 20, 20);
    for (auto* side : {&report.before, &report.after}) {
        side->breakdown_ms->fill(0);
        (*side->breakdown_ms)[static_cast<std::size_t>(diagnose::Owner::kLaunchBound)] = 10;
    }
    report.comparison = diagnose::compare(report.before, report.after);
    report.gate = SpeedGate{0.05, false};
    std::string text = compare_text(report, {});
    std::ranges::replace(text, '\n', ' ');
    EXPECT_TRUE(holds(text, "these recordings show no loss below 21 %")) << text;
    EXPECT_TRUE(holds(text, "22 recordings of each")) << text;
    EXPECT_TRUE(holds(text, "--repeat")) << text;
    const Json json = base::json_or_throw(compare_json(report));
    EXPECT_NEAR(json["least_loss_shown"].get<double>(), 0.213, 0.001);
    EXPECT_EQ(json["recordings_needed"], 22);
    report.gate->allowed = 0.25;
    EXPECT_FALSE(holds(compare_text(report, {}), "no loss below"));
    EXPECT_TRUE(base::json_or_throw(compare_json({}))["least_loss_shown"].is_null());
}

TEST(CompareText, RunsThatAreTooShortToBeCertainLeaveTheGateOpen) {
    ComparisonReport report = made(20, 21.5, 18);
    report.comparison.verdict = diagnose::Verdict::kNoDifference;
    report.comparison.p = 0.008;
    report.comparison.more_seconds = 6.6;
    for (const double allowed : {0.05, 0.2}) {
        report.gate = SpeedGate{allowed, false};
        const std::string text = compare_text(report, {});
        EXPECT_TRUE(text.starts_with("no difference shown: -16.3 % may be noise;")) << text;
        EXPECT_TRUE(holds(text, "6.6 s more")) << text;
        EXPECT_EQ(holds(text, "gate: cannot tell"), allowed < 0.1) << text;
        EXPECT_EQ(base::json_or_throw(compare_json(report))["gate"]["failed"].is_null(), allowed < 0.1);
    }
    EXPECT_EQ(base::json_or_throw(compare_json(report))["more_seconds"], 6.6);
    EXPECT_GT(base::json_or_throw(compare_json(report))["assumed_spread"].get<double>(), 0);
}

TEST(CompareJson, HoldsBothSidesAndTheVerdict) {
    ComparisonReport report = made(20, 18, 21.5);
    report.gate = SpeedGate{0.05, false};
    const Json json = base::json_or_throw(compare_json(report));
    EXPECT_EQ(json["schema"], 1);
    EXPECT_EQ(json["verdict"], "better");
    EXPECT_NEAR(json["change"].get<double>(), 0.194, 0.001);
    EXPECT_LT(json["p"].get<double>(), 0.001);
    EXPECT_EQ(json["before"]["blocks"], 20);
    EXPECT_EQ(json["before"]["busy_share"], 0.79);
    EXPECT_EQ(json["after"]["breakdown"]["compute"], 23.1);
    EXPECT_EQ(json["gate"]["failed"], false);
    const Json nothing = base::json_or_throw(compare_json({}));
    EXPECT_EQ(nothing["verdict"], "too few blocks");
    EXPECT_TRUE(nothing["change"].is_null());
    EXPECT_TRUE(nothing["before"]["steps_per_second"]["median"].is_null());
    EXPECT_TRUE(nothing["before"]["breakdown"].is_null());
}

}  // namespace
}  // namespace millrace::report
