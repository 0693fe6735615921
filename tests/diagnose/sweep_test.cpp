// Many random programs against their truth. A few in every build; MILLRACE_SWEEP=N tries N and prints every miss.

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <map>

#include "diagnose/random_programs.h"

namespace millrace::diagnose {
namespace {

constexpr double kSure = 0.04;  ///< of the step: who loses so much has to be found
constexpr double kTie = 1.2;    ///< of two causes so close either may come first

struct Truth {
    double step_ms = 0;
    std::vector<double> alone;          ///< what each cause returns
    std::map<unsigned, double> groups;  ///< what several calls return that hide each other
    double launching = 0;               ///< what it still costs after all others
};

bool is_call(const RandomCause& cause) {
    return cause.kind != Kind::kLaunchBound && cause.kind != Kind::kPythonWork && cause.kind != Kind::kFileOutput;
}

Truth truth_of(const RandomProgram& program, const Simulation& sick) {
    Truth truth;
    truth.step_ms = sick.step_ms;
    const std::size_t count = program.causes().size();
    const auto gain = [&](unsigned cured) { return sick.step_ms - program.simulate_without(cured).step_ms; };
    unsigned calls = 0;
    for (std::size_t i = 0; i < count; ++i) {
        truth.alone.push_back(gain(1u << i));
        if (is_call(program.causes()[i])) calls |= 1u << i;
    }
    for (unsigned group = 3; group <= calls; ++group) {
        if ((group & calls) != group || std::popcount(group) < 2) continue;
        double sum = 0;
        for (std::size_t i = 0; i < count; ++i)
            if (group >> i & 1) sum += std::max(0.0, truth.alone[i]);
        if (const double joint = gain(group); joint > 1.2 * sum + 0.01 * truth.step_ms) truth.groups[group] = joint;
    }
    const unsigned others = program.launching() - 1;
    truth.launching = gain(others | program.launching()) - gain(others);
    return truth;
}

enum class Outcome { kRight, kWrongCause, kWrongCost, kMissed, kFalseAlarm };

bool names(const RandomCause& cause, const Finding& finding) {
    const int line = finding.where ? finding.where->line : -1;
    return cause.kind == finding.kind && std::find(cause.lines.begin(), cause.lines.end(), line) != cause.lines.end();
}

/// What launching costs counts only where it is not the others' fault.
double weight(const Truth& truth, std::size_t cause) {
    return cause + 1 == truth.alone.size() ? std::min(truth.alone[cause], truth.launching) : truth.alone[cause];
}

/// Told of a group: waits of a group are one finding, other kinds have shares of what all of them return.
bool tells_of_group(const RandomProgram& program, const Diagnosis& diagnosis, unsigned group, double joint, double slack) {
    double sum = 0;
    for (const Finding& finding : diagnosis.findings)
        for (std::size_t i = 0; i < program.causes().size(); ++i)
            if ((group >> i & 1) && names(program.causes()[i], finding)) {
                sum += finding.lost_ms_per_step;
                break;
            }
    return std::abs(sum - joint) <= std::max(0.25 * joint, slack);
}

Outcome judge(const RandomProgram& program, const Truth& truth, const Diagnosis& diagnosis) {
    const std::size_t count = truth.alone.size();
    const double slack = 0.02 * truth.step_ms;
    double most = 0, most_of_groups = 0;
    for (std::size_t i = 0; i < count; ++i) most = std::max(most, weight(truth, i));
    for (const auto& [group, joint] : truth.groups) most_of_groups = std::max(most_of_groups, joint);
    if (diagnosis.findings.empty())
        return std::max(most, most_of_groups) < kSure * truth.step_ms ? Outcome::kRight : Outcome::kMissed;
    if (std::max(most, most_of_groups) < 0.01 * truth.step_ms) return Outcome::kFalseAlarm;
    const Finding& first = diagnosis.findings.front();
    Outcome outcome = Outcome::kWrongCause;
    for (std::size_t i = 0; i < count; ++i) {
        if (!names(program.causes()[i], first)) continue;
        for (const auto& [group, joint] : truth.groups)
            if ((group >> i & 1) && kTie * joint + slack >= most && tells_of_group(program, diagnosis, group, joint, slack))
                return Outcome::kRight;
        if (kTie * weight(truth, i) + slack < most) continue;
        if (std::abs(first.lost_ms_per_step - truth.alone[i]) <= std::max(0.25 * truth.alone[i], slack)) return Outcome::kRight;
        outcome = Outcome::kWrongCost;
    }
    return outcome;
}

std::string told_truth(const RandomProgram& program, const Truth& truth) {
    std::string text = program.described() + fmt::format("\n  step {:.3f} ms; truth:", truth.step_ms);
    for (std::size_t i = 0; i < truth.alone.size(); ++i)
        text += fmt::format(" {} {:.3f}", name_of(program.causes()[i].kind), truth.alone[i]);
    for (const auto& [group, joint] : truth.groups) text += fmt::format("; group {:b} {:.3f}", group, joint);
    return text + fmt::format("; launching after all {:.3f}\n", truth.launching);
}

TEST(Sweep, RandomProgramsAreToldRight) {
    const char* wanted = std::getenv("MILLRACE_SWEEP");
    const int programs = wanted ? std::max(1, std::atoi(wanted)) : 60;
    std::map<Outcome, int> outcomes;
    for (int seed = 0; seed < programs; ++seed) {
        const RandomProgram program(static_cast<std::uint64_t>(seed));
        const Simulation sick = program.simulate_without(0);
        const Truth truth = truth_of(program, sick);
        const Diagnosis diagnosis = diagnose(sick.timeline);
        const Outcome outcome = judge(program, truth, diagnosis);
        ++outcomes[outcome];
        constexpr const char* kNames[] = {"right", "wrong cause", "wrong cost", "missed", "false alarm"};
        if (wanted && outcome != Outcome::kRight)
            fmt::print("seed {}: {}: {}{}\n", seed, kNames[static_cast<int>(outcome)], told_truth(program, truth),
                       told(diagnosis));
    }
    const int right = outcomes[Outcome::kRight];
    fmt::print("{} programs: {} right, {} wrong cause, {} wrong cost, {} missed, {} false alarms\n", programs, right,
               outcomes[Outcome::kWrongCause], outcomes[Outcome::kWrongCost], outcomes[Outcome::kMissed],
               outcomes[Outcome::kFalseAlarm]);
    EXPECT_GE(right, programs * 95 / 100);
    EXPECT_LE(outcomes[Outcome::kFalseAlarm], programs / 100);
}

}  // namespace
}  // namespace millrace::diagnose
