#include "data/pairs/pairs.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/json.h"
#include "base/log.h"
#include "data/folder.h"
#include "data/pairs/teacher.h"
#include "io/checksum.h"
#include "io/safetensors.h"

namespace millrace::data {
namespace {

constexpr std::size_t kTextsCap = std::size_t{4} << 30;
constexpr std::size_t kDescriptionCap = std::size_t{1} << 20;
constexpr double kLengthTolerance = 1e-3;  // what a teacher in half precision leaves of a length of 1

struct PairsDescription {
    std::string name, teacher;
    std::optional<std::uint32_t> dimensions;
};

Result<PairsDescription> read_pairs_description(const Path& path) {
    PairsDescription description;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return description;
    MILLRACE_LET(text, io::read_text(path, kDescriptionCap));
    if (base::nests_too_deep(text)) return Error{"nests too deep", path.string()};
    const auto json = base::json_from(text);
    if (!json.is_object())
        return Error{R"(is not a JSON object such as {"name": "pairs", "teacher": "hashed", "dimensions": 768})", path.string()};
    // "made" is a note of the program that wrote the folder.
    for (const auto& [key, value] : json.items()) {
        if (key != "name" && key != "teacher" && key != "dimensions" && key != "made")
            return Error{fmt::format("has the unknown key '{}'; name, teacher and dimensions are known", key), path.string()};
        if ((key == "name" || key == "teacher") && !value.is_string())
            return Error{fmt::format("'{}' must be a string", key), path.string()};
    }
    description.name = json.value("name", "");
    description.teacher = json.value("teacher", "");
    if (const auto at = json.find("dimensions"); at != json.end()) {
        if (!at->is_number_integer() || at->get<double>() < 1 || at->get<double>() > kMostDimensions)
            return Error{fmt::format("'dimensions' is {}; a number from 1 to {} is needed", at->dump(), kMostDimensions),
                         path.string()};
        description.dimensions = at->get<std::uint32_t>();
    }
    return description;
}

Result<std::string> text_of(const nlohmann::json& line, const char* key, const std::string& place) {
    const auto at = line.find(key);
    if (at == line.end() || !at->is_string()) return Error{fmt::format("has no text '{}'", key), place};
    auto text = at->get<std::string>();
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Error{fmt::format("the text '{}' is empty", key), place};
    return text;
}

Result<TextPair> parse_line(std::string_view line, const std::string& place) {
    if (line.size() > kPairLineCap)
        return Error{fmt::format("the line has {} bytes; at most {} are allowed", line.size(), kPairLineCap), place};
    if (base::nests_too_deep(line)) return Error{"nests too deep", place};
    const auto json = base::json_from(line);
    if (!json.is_object())
        return Error{R"(is not a JSON object in UTF-8 such as {"input": "The pump leaked.", "target": "The floor was wet."})",
                     place};
    MILLRACE_LET(input, text_of(json, "input", place));
    MILLRACE_LET(target, text_of(json, "target", place));
    return TextPair{std::move(input), std::move(target)};
}

Result<std::vector<TextPair>> parse_texts(std::string_view all, std::uint32_t count, const Path& path) {
    std::vector<TextPair> texts;
    while (!all.empty()) {
        const std::string place = fmt::format("{}:{}", path.string(), texts.size() + 1);
        if (texts.size() == count) return Error{fmt::format("a line more than {} has vectors ({})", kPairVectors, count), place};
        const std::size_t end = all.find('\n');
        MILLRACE_LET(pair, parse_line(all.substr(0, end), place));
        texts.push_back(std::move(pair));
        all.remove_prefix(end == std::string_view::npos ? all.size() : end + 1);
    }
    if (texts.size() != count)
        return Error{fmt::format("has {} lines for the {} vectors of {}", texts.size(), count, kPairVectors), path.string()};
    return texts;
}

struct PairShape {
    std::uint32_t count = 0, dimensions = 0;
};

Result<PairShape> shape_of(const io::SafetensorsFile& file, const char* name) {
    const std::string place = file.place().string();
    const io::TensorView* tensor = file.find(name);
    if (tensor == nullptr)
        return Error{fmt::format("has no tensor '{}'; '{}' and '{}' are needed", name, kInputVectors, kTargetVectors), place};
    if (tensor->shape.size() != 2)
        return Error{fmt::format("tensor '{}' has {} axes; [pairs, dimensions] is needed", name, tensor->shape.size()), place};
    const std::int64_t count = tensor->shape[0], dimensions = tensor->shape[1];
    if (count < 1 || count > std::numeric_limits<std::int32_t>::max())
        return Error{fmt::format("tensor '{}' has {} rows; 1 to 2^31 - 1 would be right", name, count), place};
    if (dimensions < 1 || dimensions > kMostDimensions)
        return Error{fmt::format("tensor '{}' has rows of {} numbers; 1 to {} would be right", name, dimensions, kMostDimensions),
                     place};
    return PairShape{static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(dimensions)};
}

/// Copies a tensor and scales rows that are not of length 1; `scaled` counts them.
Result<std::vector<float>> read_vectors(const io::SafetensorsFile& file, const char* name, PairShape shape,
                                        std::uint64_t& scaled) {
    std::vector<float> values(std::size_t{shape.count} * shape.dimensions);
    const std::int64_t extents[] = {shape.count, shape.dimensions};
    MILLRACE_TRY(file.copy_floats(name, extents, values));
    for (std::size_t row = 0; row < shape.count; ++row) {
        const std::span vector(values.data() + row * shape.dimensions, shape.dimensions);
        double squares = 0;
        for (const float value : vector) squares += static_cast<double>(value) * static_cast<double>(value);
        if (!std::isfinite(squares) || squares == 0)
            return Error{fmt::format("row {} of tensor '{}' {}", row, name,
                                     squares == 0 ? "is zero: it points nowhere" : "holds a number that is not finite"),
                         file.place().string()};
        const double length = std::sqrt(squares);
        if (std::abs(length - 1) <= kLengthTolerance) continue;
        for (float& value : vector) value = static_cast<float>(static_cast<double>(value) / length);
        ++scaled;
    }
    return values;
}

/// A folder that says `hashed` promises that texts can be embedded here; the first and the last pair show whether that is so.
Status check_teacher(const PairSet& set, const Path& folder) {
    if (set.teacher != kHashedTeacher) return base::ok();
    for (const std::size_t row : {std::size_t{0}, std::size_t{set.count} - 1})
        for (const bool target : {false, true}) {
            const std::string place = fmt::format("{}:{}", (folder / kPairTexts).string(), row + 1);
            const auto vector = teach(target ? set.texts[row].target : set.texts[row].input, set.dimensions);
            if (!vector.ok()) return Error{vector.error().message, place};
            const float* stored = (target ? set.targets : set.inputs).data() + row * set.dimensions;
            for (std::size_t i = 0; i < set.dimensions; ++i)
                if (std::abs((*vector)[i] - stored[i]) > 1e-3f)
                    return Error{fmt::format("row {} of '{}' in {} is not the hashed teacher's vector of this text; another "
                                             "teacher in {} would be right",
                                             row, target ? kTargetVectors : kInputVectors, kPairVectors, kDescription),
                                 place};
        }
    return base::ok();
}

}  // namespace

Result<PairSet> load_pair_set(const Path& folder, double validation, std::uint64_t split_seed) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(folder, ignored))
        return Error{fmt::format("no such folder; it should hold {} and {} (`millrace data make pairs --out {}` writes a set)",
                                 kPairVectors, kPairTexts, folder.string()),
                     folder.string()};
    MILLRACE_LET(description, read_pairs_description(folder / kDescription));
    MILLRACE_LET(file, io::SafetensorsFile::open(folder / kPairVectors));
    MILLRACE_LET(inputs, shape_of(file, kInputVectors));
    MILLRACE_LET(targets, shape_of(file, kTargetVectors));
    if (inputs.count != targets.count || inputs.dimensions != targets.dimensions)
        return Error{fmt::format("'{}' is [{}, {}] and '{}' [{}, {}]; they must be equal", kInputVectors, inputs.count,
                                 inputs.dimensions, kTargetVectors, targets.count, targets.dimensions),
                     file.place().string()};
    if (description.dimensions.value_or(inputs.dimensions) != inputs.dimensions)
        return Error{fmt::format("says {} dimensions, the vectors of {} have {}", *description.dimensions, kPairVectors,
                                 inputs.dimensions),
                     (folder / kDescription).string()};
    PairSet set;
    set.name = description.name.empty() ? folder_name(folder) : description.name;
    set.teacher = description.teacher;
    set.count = inputs.count;
    set.dimensions = inputs.dimensions;
    std::uint64_t scaled = 0;
    MILLRACE_LET(input_values, read_vectors(file, kInputVectors, inputs, scaled));
    MILLRACE_LET(target_values, read_vectors(file, kTargetVectors, targets, scaled));
    set.inputs = std::move(input_values);
    set.targets = std::move(target_values);
    MILLRACE_LET(lines, io::read_text(folder / kPairTexts, kTextsCap));
    MILLRACE_SET(set.texts, parse_texts(lines, set.count, folder / kPairTexts));
    MILLRACE_TRY(check_teacher(set, folder));
    if (scaled > 0)
        MILLRACE_LOG(warn, "{}: {} of {} vectors were not of length 1 and have been scaled to it", file.place().string(), scaled,
                     2 * std::uint64_t{set.count});
    io::Checksum64 sum;
    for (const char* name : {kInputVectors, kTargetVectors}) sum.update({file.find(name)->data, file.find(name)->bytes});
    sum.update(io::bytes_of(lines));
    set.checksum = sum.value();
    split_samples(set.parts, 0, static_cast<std::int32_t>(set.count), validation, 0, split_seed);
    return set;
}

}  // namespace millrace::data
