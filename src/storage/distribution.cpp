#include "storage/distribution.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace millrace::storage {
namespace {

using search::Parameter;
using search::ParameterKind;

std::string choice_json(const base::RawScalar& choice) {
    if (const auto* flag = std::get_if<bool>(&choice)) return *flag ? "true" : "false";
    if (const auto* whole = std::get_if<int64_t>(&choice)) return fmt::format("{}", *whole);
    if (const auto* number = std::get_if<double>(&choice)) return json_number(*number);
    const auto* text = std::get_if<std::string>(&choice);
    return text != nullptr ? json_text(*text) : "null";
}

std::string categorical_json(const std::string& choices) {
    return fmt::format(R"({{"name": "CategoricalDistribution", "attributes": {{"choices": [{}]}}}})", choices);
}

std::string alternative_name(const Parameter& parameter) { return parameter.name + ":or"; }

constexpr double kTakesAlternative = 0, kTakesRange = 1;

}  // namespace

std::string json_number(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return base::json_text(nlohmann::json(number));
}

std::string json_text(const std::string& text) { return base::ascii_json_text(nlohmann::json(text)); }

std::optional<std::string> text_of_json(const std::string& json) {
    if (!json.starts_with('"')) return std::nullopt;
    const auto parsed = base::json_from(json);
    if (!parsed.is_string()) return std::nullopt;
    return parsed.get<std::string>();
}

std::string json_numbers(const std::vector<double>& numbers) {
    std::string out = "[";
    for (const double number : numbers) out += (out.size() > 1 ? ", " : "") + json_number(number);
    return out + "]";
}

std::optional<std::vector<double>> numbers_of_json(const std::string& json) {
    if (json.size() < 2 || json.front() != '[' || json.back() != ']') return std::nullopt;
    std::vector<double> numbers;
    const char* at = json.c_str() + 1;
    const char* const last = json.c_str() + json.size() - 1;
    while (at < last) {
        char* end = nullptr;
        numbers.push_back(std::strtod(at, &end));
        if (end == at || end > last) return std::nullopt;
        at = end;
        while (at < last && *at == ' ') ++at;
        if (at < last && *at++ != ',') return std::nullopt;
    }
    return numbers;
}

std::string distribution_json(const Parameter& parameter) {
    switch (parameter.kind) {
        case ParameterKind::integer:
            return fmt::format(
                R"({{"name": "IntDistribution", "attributes": {{"log": false, "step": {}, "low": {}, "high": {}}}}})",
                static_cast<int64_t>(parameter.step), static_cast<int64_t>(parameter.low), static_cast<int64_t>(parameter.high));
        case ParameterKind::choice: {
            std::string choices;
            for (const auto& choice : parameter.choices) choices += (choices.empty() ? "" : ", ") + choice_json(choice);
            return categorical_json(choices);
        }
        case ParameterKind::uniform:
        case ParameterKind::log: break;
    }
    return fmt::format(R"({{"name": "FloatDistribution", "attributes": {{"step": null, "low": {}, "high": {}, "log": {}}}}})",
                       json_number(parameter.low), json_number(parameter.high), parameter.kind == ParameterKind::log);
}

std::vector<std::pair<std::string, std::string>> distributions_of(const Parameter& parameter) {
    std::vector<std::pair<std::string, std::string>> out{{parameter.name, distribution_json(parameter)}};
    if (parameter.alternative)
        out.emplace_back(alternative_name(parameter), categorical_json(json_number(*parameter.alternative) + ", \"range\""));
    return out;
}

std::vector<std::pair<std::string, double>> numbers_of(const Parameter& parameter, double value) {
    if (parameter.is_alternative(value)) return {{alternative_name(parameter), kTakesAlternative}};
    std::vector<std::pair<std::string, double>> out{{parameter.name, value}};
    if (parameter.alternative) out.emplace_back(alternative_name(parameter), kTakesRange);
    return out;
}

std::optional<double> value_of(const Parameter& parameter, const std::map<std::string, double>& numbers) {
    if (parameter.alternative) {
        const auto taken = numbers.find(alternative_name(parameter));
        if (taken == numbers.end()) return std::nullopt;
        if (taken->second == kTakesAlternative) return parameter.alternative;
        if (taken->second != kTakesRange) return std::nullopt;
    }
    const auto found = numbers.find(parameter.name);
    if (found == numbers.end() || parameter.is_alternative(found->second) || !parameter.holds(found->second)) return std::nullopt;
    return found->second;
}

}  // namespace millrace::storage
