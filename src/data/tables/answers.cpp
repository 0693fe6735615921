#include "data/forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "base/units.h"
#include "base/utf8.h"

namespace millrace::data {
namespace {

constexpr std::size_t kMostAnswerClasses = 65'536;
constexpr std::string_view kMissing[] = {"", "na", "n/a", "nan", "null", "none", "?"};

void drop_missing(SampleSet& set, const std::vector<std::string_view>& cells, const std::string& name) {
    std::size_t dropped = 0;
    for (std::vector<std::int32_t>& part : set.parts)
        dropped += std::erase_if(part, [&](std::int32_t sample) { return is_missing(cells[static_cast<std::size_t>(sample)]); });
    if (dropped > 0) set.notes.push_back(fmt::format("{} {} without {} are left out", dropped, set.unit, name));
}

Status set_classes(SampleSet& set, const std::string& name, const std::vector<std::string_view>& cells,
                   const SampleRequest& request) {
    std::set<std::string> all;
    for (const std::vector<std::int32_t>& part : set.parts)
        for (const std::int32_t sample : part) all.emplace(cells[static_cast<std::size_t>(sample)]);
    const std::vector<std::string> names(all.begin(), all.end());
    if (names.size() > kMostAnswerClasses || (names.size() < 2 && request.stored == nullptr))
        return Error{fmt::format("{} has {} classes; 2 to {} would be right", name, names.size(), kMostAnswerClasses),
                     request.path.string()};
    for (const std::string& each : names)
        if (base::find_broken_utf8(each) != std::string::npos)
            return Error{fmt::format("a class of {} is not UTF-8", name), request.path.string()};
    Preparation& prepared = set.preparation;
    if (request.stored == nullptr) prepared.class_names = names;
    MILLRACE_LET(numbers, number_classes(names, prepared, request.path.string()));
    prepared.classes = static_cast<std::int32_t>(prepared.class_names.size());
    std::map<std::string_view, std::int32_t> number;
    for (std::size_t i = 0; i < names.size(); ++i) number[names[i]] = numbers[i];
    set.labels.assign(cells.size(), 0);
    for (const std::vector<std::int32_t>& part : set.parts)
        for (const std::int32_t sample : part)
            set.labels[static_cast<std::size_t>(sample)] = number.at(cells[static_cast<std::size_t>(sample)]);
    set.notes.push_back(fmt::format("{}: one of {} classes", name, prepared.classes));
    return base::ok();
}

Status set_numbers(SampleSet& set, const std::string& name, const std::vector<std::string_view>& cells,
                   const SampleRequest& request) {
    std::vector<double> values(cells.size(), 0);
    for (const std::vector<std::int32_t>& part : set.parts)
        for (const std::int32_t sample : part) {
            const std::string_view cell = cells[static_cast<std::size_t>(sample)];
            const auto value = number_of(cell);
            if (!value)
                return Error{fmt::format("{} has \"{}\", which is no number; data.task = \"classification\" takes its values for "
                                         "classes",
                                         name, cell),
                             request.path.string()};
            values[static_cast<std::size_t>(sample)] = *value;
        }
    scale_targets(set, name, values);
    set.notes.push_back(
        fmt::format("{}: a number, mean {:.4g}, deviation {:.4g}; data.task = \"classification\" would take its "
                    "values for classes",
                    name, set.preparation.target->mean, set.preparation.target->deviation));
    return base::ok();
}

}  // namespace

bool is_missing(std::string_view cell) {
    std::string lower(base::trimmed(cell));
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return std::ranges::find(kMissing, lower) != std::end(kMissing);
}

std::optional<double> number_of(std::string_view cell) {
    std::string_view word = base::trimmed(cell);
    if (word.starts_with('+')) word.remove_prefix(1);
    double value = 0;
    const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (failure != std::errc{} || end != word.data() + word.size() || !std::isfinite(value)) return std::nullopt;
    return value;
}

Status set_answers(SampleSet& set, const std::string& name, const std::vector<std::string_view>& cells,
                   const SampleRequest& request) {
    set.preparation.answer = name;
    drop_missing(set, cells, name);
    bool numbers = request.task == "regression";
    if (request.stored != nullptr) {
        set.preparation.class_names = request.stored->class_names;
        set.preparation.target = request.stored->target;
        numbers = request.stored->target.has_value();
    } else if (request.task == "auto") {
        numbers = std::ranges::all_of(set.parts, [&](const auto& part) {
            return std::ranges::all_of(
                part, [&](std::int32_t sample) { return number_of(cells[static_cast<std::size_t>(sample)]).has_value(); });
        });
    }
    return numbers ? set_numbers(set, name, cells, request) : set_classes(set, name, cells, request);
}

}  // namespace millrace::data
