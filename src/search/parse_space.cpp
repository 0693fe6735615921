#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/nearest.h"
#include "search/space.h"

namespace millrace::search {
namespace {

using base::Error;
using base::RawEntry;
using base::RawScalar;
using base::Result;
using base::Status;

const std::vector<std::string> kWords = {"log", "uniform", "int", "choice", "step", "or"};
constexpr double kLargestInteger = 9007199254740992;  // 2^53: a double holds every whole number up to it
constexpr size_t kMostChoices = 4096;

/// What a study file says of one parameter: a word ("log", "step", ...) and its entry.
struct Description {
    std::string name;
    std::string place;
    std::vector<std::pair<std::string, const RawEntry*>> words;

    [[nodiscard]] const RawEntry* find(std::string_view word) const {
        for (const auto& [known, entry] : words)
            if (known == word) return entry;
        return nullptr;
    }
};

std::optional<double> finite_number(const RawScalar& raw) {
    if (const auto* whole = std::get_if<int64_t>(&raw)) return static_cast<double>(*whole);
    if (const auto* number = std::get_if<double>(&raw); number != nullptr && std::isfinite(*number)) return *number;
    return std::nullopt;
}

std::optional<double> whole_number(const RawScalar& raw) {
    const auto* whole = std::get_if<int64_t>(&raw);
    if (whole == nullptr || std::abs(static_cast<double>(*whole)) > kLargestInteger) return std::nullopt;
    return static_cast<double>(*whole);
}

/// Splits `"optim.lr".log` or `optim.lr.log` into the key and the word; the word is empty when there is none.
Result<std::pair<std::string, std::string>> split_name(std::string_view path, const std::string& place) {
    std::string name, word;
    if (path.starts_with('"')) {
        const size_t end = path.find('"', 1);
        name = path.substr(1, end - 1);
        if (end + 1 < path.size()) word = path.substr(end + 2);
    } else {
        const size_t dot = path.rfind('.');
        name = path.substr(0, dot);
        if (dot != std::string_view::npos) word = path.substr(dot + 1);
    }
    const bool is_key = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    });
    if (!is_key)
        return Error{fmt::format("{} is not a recipe's key such as optim.lr", base::quoted_text(name.substr(0, 80))), place};
    return std::pair{name, word};
}

Status read_ends(const Description& from, const RawEntry& entry, Parameter& out) {
    const bool is_integer = out.kind == ParameterKind::integer;
    const auto number = is_integer ? whole_number : finite_number;
    const std::vector<RawScalar>& items = entry.value.items;
    std::optional<double> low, high;
    if (entry.value.is_list && items.size() == 2) {
        low = number(items[0]);
        high = number(items[1]);
    }
    if (!low || !high)
        return Error{
            fmt::format("the range of {} must be two finite {} [low, high]", from.name, is_integer ? "whole numbers" : "numbers"),
            entry.place};
    if (*low >= *high)
        return Error{fmt::format("the range of {} is empty: {} is not below {}; a fixed value belongs under [set]", from.name,
                                 *low, *high),
                     entry.place};
    if (out.kind == ParameterKind::log && *low <= 0)
        return Error{
            fmt::format("{} is searched in the logarithm, so its range must begin above 0, not at {}; \"or = 0\" adds the zero",
                        from.name, *low),
            entry.place};
    if (!std::isfinite(*high - *low))
        return Error{fmt::format("the range of {} is too wide for a number of 64 bits", from.name), entry.place};
    out.low = *low;
    out.high = *high;
    return base::ok();
}

Status read_step(const Description& from, const RawEntry* entry, Parameter& out) {
    if (entry == nullptr) return base::ok();
    if (out.kind != ParameterKind::integer)
        return Error{fmt::format("{} has a step, which only {{ int = [low, high] }} takes", from.name), entry->place};
    const auto step = entry->value.is_list ? std::nullopt : whole_number(entry->value.items.front());
    if (!step || *step < 1)
        return Error{fmt::format("the step of {} must be a whole number of at least 1", from.name), entry->place};
    if (std::fmod(out.high - out.low, *step) != 0)
        return Error{fmt::format("the step {} of {} does not divide its range from {} to {}; the last value would be {}", *step,
                                 from.name, out.low, out.high, out.high - std::fmod(out.high - out.low, *step)),
                     entry->place};
    out.step = *step;
    return base::ok();
}

Status read_alternative(const Description& from, const RawEntry* entry, Parameter& out) {
    if (entry == nullptr) return base::ok();
    if (out.kind == ParameterKind::choice)
        return Error{fmt::format("{} is a choice: add the value to its list instead of \"or\"", from.name), entry->place};
    const auto number = out.kind == ParameterKind::integer ? whole_number : finite_number;
    const auto value = entry->value.is_list ? std::nullopt : number(entry->value.items.front());
    if (!value)
        return Error{fmt::format("\"or\" of {} must be one finite {}", from.name,
                                 out.kind == ParameterKind::integer ? "whole number" : "number"),
                     entry->place};
    if (*value >= out.low && *value <= out.high)
        return Error{
            fmt::format("\"or = {}\" of {} lies inside of its range from {} to {}", *value, from.name, out.low, out.high),
            entry->place};
    out.alternative = *value;
    return base::ok();
}

Status read_choices(const Description& from, const RawEntry& entry, Parameter& out) {
    if (!entry.value.is_list || entry.value.items.empty())
        return Error{fmt::format("the choice of {} must be a list with at least one value", from.name), entry.place};
    if (entry.value.items.size() > kMostChoices)
        return Error{fmt::format("the choice of {} has {} values; at most {} are possible", from.name, entry.value.items.size(),
                                 kMostChoices),
                     entry.place};
    for (const RawScalar& item : entry.value.items) {
        const bool is_plain =
            std::holds_alternative<bool>(item) || std::holds_alternative<std::string>(item) || finite_number(item).has_value();
        if (!is_plain)
            return Error{fmt::format("the choice of {} may hold finite numbers, texts, true and false, nothing else", from.name),
                         entry.place};
        out.choices.push_back(item);
        const std::string text = out.text(static_cast<double>(out.choices.size() - 1));
        for (size_t i = 0; i + 1 < out.choices.size(); ++i)
            if (out.text(static_cast<double>(i)) == text)
                return Error{fmt::format("the choice of {} holds {} twice", from.name, text.substr(0, 80)), entry.place};
    }
    return base::ok();
}

Result<Parameter> read_parameter(const Description& from) {
    static const std::vector<std::pair<std::string, ParameterKind>> kinds = {{"log", ParameterKind::log},
                                                                             {"uniform", ParameterKind::uniform},
                                                                             {"int", ParameterKind::integer},
                                                                             {"choice", ParameterKind::choice}};
    Parameter out;
    out.name = from.name;
    const RawEntry* kind_entry = nullptr;
    for (const auto& [word, kind] : kinds) {
        const RawEntry* entry = from.find(word);
        if (entry == nullptr) continue;
        if (kind_entry != nullptr)
            return Error{fmt::format("{} has two kinds; take one of log, uniform, int, choice", from.name), entry->place};
        kind_entry = entry;
        out.kind = kind;
    }
    if (kind_entry == nullptr)
        return Error{
            fmt::format("{} needs a range or a choice, such as {{ uniform = [0.0, 0.5] }}; a fixed value belongs under [set]",
                        from.name),
            from.place};
    out.place = kind_entry->place;
    if (out.kind == ParameterKind::choice)
        MILLRACE_TRY(read_choices(from, *kind_entry, out));
    else
        MILLRACE_TRY(read_ends(from, *kind_entry, out));
    MILLRACE_TRY(read_step(from, from.find("step"), out));
    MILLRACE_TRY(read_alternative(from, from.find("or"), out));
    return out;
}

}  // namespace

Result<Space> parse_space(std::span<const RawEntry> entries, const std::string& table) {
    std::vector<Description> descriptions;
    for (const RawEntry& entry : entries) {
        if (!entry.name.starts_with(table + ".")) continue;
        MILLRACE_LET(parts, split_name(std::string_view{entry.name}.substr(table.size() + 1), entry.place));
        const auto& [name, word] = parts;
        auto at = std::find_if(descriptions.begin(), descriptions.end(), [&](const Description& d) { return d.name == name; });
        if (at == descriptions.end()) at = descriptions.insert(at, Description{name, entry.place, {}});
        if (word.empty()) continue;
        if (std::find(kWords.begin(), kWords.end(), word) == kWords.end()) {
            const std::string close = base::nearest_name(word, kWords);
            return Error{fmt::format("unknown word {} of {}; {}", base::quoted_text(word.substr(0, 80)), name,
                                     close.empty() ? fmt::format("a parameter takes {}", fmt::join(kWords, ", "))
                                                   : fmt::format("did you mean {}?", close)),
                         entry.place};
        }
        if (at->find(word) != nullptr) return Error{fmt::format("{} has \"{}\" twice", name, word), entry.place};
        at->words.emplace_back(word, &entry);
    }
    Space out;
    for (const Description& description : descriptions) MILLRACE_SET(out.parameters.emplace_back(), read_parameter(description));
    if (out.parameters.empty())
        return Error{fmt::format("[{}] has no parameter; write for example \"optim.lr\" = {{ log = [1e-5, 1e-1] }}", table)};
    return out;
}

}  // namespace millrace::search
