#include "data/preparation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace millrace::data {
namespace {

constexpr std::int32_t kMostClasses = 65'536;
constexpr std::int64_t kMostElements = 1 << 28;

using Json = nlohmann::ordered_json;

bool scales(const std::vector<float>& mean, const std::vector<float>& deviation) {
    const auto finite = [](float value) { return std::isfinite(value); };
    return mean.size() == deviation.size() && std::ranges::all_of(mean, finite) &&
           std::ranges::all_of(deviation, [](float value) { return std::isfinite(value) && value > 0; });
}

bool scales(double mean, double deviation) { return std::isfinite(mean) && std::isfinite(deviation) && deviation > 0; }

bool sound(const Preparation& p) {
    const auto side = [](std::int32_t extent) { return extent >= 0 && extent <= 1 << 20; };
    const auto fine = [](const Column& column) { return column.category || scales(column.mean, column.deviation); };
    return side(p.shape.height) && side(p.shape.width) && side(p.shape.channels) && p.shape.size() <= kMostElements &&
           scales(p.mean, p.deviation) && std::ranges::all_of(p.columns, fine) && p.classes >= 0 && p.classes <= kMostClasses &&
           (p.class_names.empty() || p.class_names.size() == static_cast<std::size_t>(p.classes)) &&
           (p.classes > 0) != p.target.has_value() && (!p.target || scales(p.target->mean, p.target->deviation));
}

Json json_of(const Column& column) {
    if (column.category) return {{"name", column.name}, {"words", column.words}};
    return {{"name", column.name}, {"mean", column.mean}, {"deviation", column.deviation}};
}

Column column_of(const nlohmann::json& json) {
    Column column{json.at("name"), json.contains("words")};
    if (column.category) json.at("words").get_to(column.words);
    column.mean = json.value("mean", 0.0);
    column.deviation = json.value("deviation", 1.0);
    return column;
}

}  // namespace

std::size_t Preparation::width() const {
    std::size_t width = shape.size() > 0 ? static_cast<std::size_t>(shape.size()) : mean.size();
    for (const Column& column : columns) width += column.width();
    return width;
}

std::string encode(const Preparation& p) {
    Json json;
    if (p.shape.size() > 0) json["shape"] = {p.shape.height, p.shape.width, p.shape.channels};
    if (!p.resize.empty()) json["resize"] = p.resize;
    if (!p.mean.empty()) json["mean"] = p.mean, json["deviation"] = p.deviation;
    for (const Column& column : p.columns) json["columns"].push_back(json_of(column));
    if (!p.answer.empty()) json["answer"] = p.answer;
    if (p.target) json["target"] = {{"name", p.target->name}, {"mean", p.target->mean}, {"deviation", p.target->deviation}};
    if (p.classes > 0) json["classes"] = p.classes;
    if (!p.class_names.empty()) json["class_names"] = p.class_names;
    return base::json_text(json);
}

base::Result<Preparation> decode_preparation(const std::string& text, const std::string& place) {
    Preparation p;
    try {
        const auto json = base::json_or_throw(text);
        if (json.contains("shape")) {
            const auto sides = json.at("shape").get<std::array<std::int32_t, 3>>();
            p.shape = {sides[0], sides[1], sides[2]};
        }
        p.resize = json.value("resize", std::string());
        p.mean = json.value("mean", std::vector<float>());
        p.deviation = json.value("deviation", std::vector<float>());
        for (const auto& column : json.value("columns", nlohmann::json::array())) p.columns.push_back(column_of(column));
        p.answer = json.value("answer", std::string());
        if (const auto at = json.find("target"); at != json.end())
            p.target = Target{at->at("name"), at->at("mean"), at->at("deviation")};
        p.classes = json.value("classes", 0);
        p.class_names = json.value("class_names", std::vector<std::string>());
    } catch (const nlohmann::json::exception& e) {
        return base::Error{fmt::format("no description of prepared data: {}", e.what()), place};
    }
    if (!sound(p)) return base::Error{"the description of prepared data contradicts itself", place};
    return p;
}

base::Result<std::vector<std::int32_t>> number_classes(const std::vector<std::string>& names, const Preparation& stored,
                                                       const std::string& place) {
    std::vector<std::int32_t> numbers;
    for (std::size_t i = 0; i < names.size(); ++i) {
        const auto& known = stored.class_names;
        const auto at = std::ranges::find(known, names[i]);
        if (!known.empty() && at == known.end())
            return base::Error{
                fmt::format("has the class \"{}\", which the training data had not; it had {}", names[i], fmt::join(known, ", ")),
                place};
        numbers.push_back(static_cast<std::int32_t>(known.empty() ? static_cast<std::ptrdiff_t>(i) : at - known.begin()));
    }
    return numbers;
}

}  // namespace millrace::data
