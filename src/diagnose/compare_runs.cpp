#include "diagnose/compare_runs.h"

#include <algorithm>
#include <cmath>

#include "diagnose/student.h"

namespace millrace::diagnose {
namespace {

std::vector<double> logarithms_of(std::span<const double> speeds) {
    std::vector<double> logs;
    for (const double speed : speeds) logs.push_back(std::log(std::max(speed, 1e-300)));
    return logs;
}

double mean_of(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
}

double squares_around(const std::vector<double>& values, double mean) {
    double sum = 0;
    for (const double value : values) sum += (value - mean) * (value - mean);
    return sum;
}

}  // namespace

double host_share(const CompareSide& side) {
    if (!side.breakdown_ms) return 0;
    double all = 0;
    for (const double ms : *side.breakdown_ms) all += ms;
    const double device = (*side.breakdown_ms)[static_cast<std::size_t>(Owner::kCompute)] +
                          (*side.breakdown_ms)[static_cast<std::size_t>(Owner::kCommunication)];
    return all > 0 && std::isfinite(all) ? std::clamp(1 - device / all, 0.0, 1.0) : 0;
}

RunTest test_runs(std::span<const double> before, std::span<const double> after) {
    const std::vector<double> one = logarithms_of(before), other = logarithms_of(after);
    const double from = mean_of(one), to = mean_of(other);
    const auto freedom = static_cast<double>(one.size() + other.size()) - 2;
    const double spread = std::sqrt((squares_around(one, from) + squares_around(other, to)) / freedom);
    const double error = spread * std::sqrt(1 / static_cast<double>(one.size()) + 1 / static_cast<double>(other.size()));
    const double reach = student_t(0.05, freedom) * error;
    RunTest test;
    test.spread = spread;
    test.change = std::expm1(to - from);
    test.change_low = std::expm1(to - from - reach);
    test.change_high = std::expm1(to - from + reach);
    test.p = error > 0 ? student_p((to - from) / error, freedom) : (to == from ? 1 : 0);
    return test;
}

}  // namespace millrace::diagnose
