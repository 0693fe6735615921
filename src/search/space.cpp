#include "search/space.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace millrace::search {

int64_t Parameter::cells() const {
    if (kind == ParameterKind::choice) return static_cast<int64_t>(choices.size());
    if (kind == ParameterKind::integer) return std::llround((high - low) / step) + 1;
    return 0;
}

double Parameter::range_to_unit(double value) const {
    switch (kind) {
        case ParameterKind::uniform: return (value - low) / (high - low);
        case ParameterKind::log: return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
        case ParameterKind::integer: return ((value - low) / step + 0.5) / static_cast<double>(cells());
        case ParameterKind::choice: return (value + 0.5) / static_cast<double>(cells());
    }
    return 0;
}

double Parameter::range_from_unit(double unit) const {
    const double inside = std::clamp(unit, 0.0, 1.0);
    if (cells() == 0 && (inside == 0 || inside == 1)) return inside == 0 ? low : high;  // a logarithm would not come back exactly
    if (kind == ParameterKind::uniform) return std::clamp(low + inside * (high - low), low, high);
    if (kind == ParameterKind::log) {
        const double value = std::exp(std::log(low) + inside * (std::log(high) - std::log(low)));
        return std::clamp(value, low, high);
    }
    const double cell = std::min(std::floor(inside * static_cast<double>(cells())), static_cast<double>(cells() - 1));
    return kind == ParameterKind::choice ? cell : low + cell * step;
}

double Parameter::to_unit(double value) const {
    if (!alternative) return range_to_unit(value);
    if (is_alternative(value)) return kAlternativeShare / 2;
    return kAlternativeShare + (1 - kAlternativeShare) * range_to_unit(value);
}

double Parameter::from_unit(double unit) const {
    if (!alternative) return range_from_unit(unit);
    if (unit < kAlternativeShare) return *alternative;
    return range_from_unit((unit - kAlternativeShare) / (1 - kAlternativeShare));
}

bool Parameter::holds(double value) const {
    if (is_alternative(value)) return true;
    if (kind == ParameterKind::uniform || kind == ParameterKind::log) return value >= low && value <= high;
    const double cell = kind == ParameterKind::choice ? value : (value - low) / step;
    return cell >= 0 && cell < static_cast<double>(cells()) && cell == std::floor(cell);
}

bool Space::holds(const Configuration& configuration) const {
    return std::ranges::equal(parameters, configuration, &Parameter::holds);
}

std::string Parameter::text(double value) const {
    if (kind == ParameterKind::integer) return fmt::format("{}", std::llround(value));
    if (kind != ParameterKind::choice) return base::real_literal(value);
    const base::RawScalar& chosen = choices.at(static_cast<size_t>(value));
    if (const auto* flag = std::get_if<bool>(&chosen)) return *flag ? "true" : "false";
    if (const auto* whole = std::get_if<int64_t>(&chosen)) return fmt::format("{}", *whole);
    if (const auto* number = std::get_if<double>(&chosen)) return base::real_literal(*number);
    const auto& words = std::get<std::string>(chosen);
    // On a command line plain words are a text; only what looks like a literal needs quotes.
    const bool needs_quotes = words.empty() || words.front() == '"' || words.front() == '\'' || words.front() == '[';
    return needs_quotes ? base::quoted_text(words) : words;
}

std::vector<double> Space::to_unit(const Configuration& configuration) const {
    MILLRACE_ASSERT(configuration.size() == size(), fmt::format("{} values for {} parameters", configuration.size(), size()));
    std::vector<double> out(size());
    for (size_t i = 0; i < size(); ++i) out[i] = parameters[i].to_unit(configuration[i]);
    return out;
}

Configuration Space::from_unit(std::span<const double> unit) const {
    MILLRACE_ASSERT(unit.size() == size(), fmt::format("{} coordinates for {} parameters", unit.size(), size()));
    Configuration out(size());
    for (size_t i = 0; i < size(); ++i) out[i] = parameters[i].from_unit(unit[i]);
    return out;
}

std::vector<std::string> Space::settings(const Configuration& configuration) const {
    MILLRACE_ASSERT(configuration.size() == size(), fmt::format("{} values for {} parameters", configuration.size(), size()));
    std::vector<std::string> out;
    out.reserve(size());
    for (size_t i = 0; i < size(); ++i) out.push_back(parameters[i].name + "=" + parameters[i].text(configuration[i]));
    return out;
}

}  // namespace millrace::search
