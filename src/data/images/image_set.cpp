#include "data/images/image_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/json.h"
#include "data/images/garments.h"
#include "io/checksum.h"

namespace millrace::data {
namespace {

/// dataset.json, every part optional.
struct ImageSetDescription {
    std::optional<std::string> name;
    std::optional<PixelStatistics> pixels;
    std::optional<std::uint32_t> classes;
    std::vector<std::string> class_names;
};

Result<std::vector<std::string>> read_class_names(const nlohmann::json& json, std::optional<std::uint32_t> classes,
                                                  const Path& path) {
    std::vector<std::string> names;
    // They are printed, so nothing may move the cursor.
    for (const auto& name : json.is_array() ? json : nlohmann::json::array())
        if (name.is_string() &&
            std::ranges::none_of(name.get<std::string>(), [](unsigned char c) { return c < ' ' || c == 127; }))
            names.push_back(name.get<std::string>());
    if (names.empty() || names.size() != json.size() || names.size() > 256)
        return Error{"'class_names' must be a list of 1 to 256 texts without control characters", path.string()};
    if (classes && *classes != names.size())
        return Error{fmt::format("'class_names' has {} names for {} classes", names.size(), *classes), path.string()};
    return names;
}

Result<ImageSetDescription> read_image_description(const Path& path) {
    ImageSetDescription description;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return description;
    MILLRACE_LET(text, io::read_text(path, std::size_t{1} << 20));
    const auto json = base::json_from(text);
    if (!json.is_object())
        return Error{R"(is not a JSON object such as {"name": "mnist", "mean": 0.13, "std": 0.31, "classes": 10})",
                     path.string()};
    // "made" is the note of make_garments(), by which it knows its own.
    for (const auto& [key, value] : json.items())
        if (key != "name" && key != "mean" && key != "std" && key != "classes" && key != "class_names" && key != "made")
            return Error{fmt::format("has the unknown key '{}'; name, mean, std, classes and class_names are known", key),
                         path.string()};
    if (const auto at = json.find("name"); at != json.end()) {
        if (!at->is_string()) return Error{"'name' must be a string", path.string()};
        description.name = at->get<std::string>();
    }
    if (const auto at = json.find("classes"); at != json.end()) {
        if (!at->is_number_integer() || at->get<double>() < 1 || at->get<double>() > 256)
            return Error{fmt::format("'classes' is {}; a number from 1 to 256 is needed", at->dump()), path.string()};
        description.classes = at->get<std::uint32_t>();
    }
    if (const auto at = json.find("class_names"); at != json.end()) {
        MILLRACE_LET(names, read_class_names(*at, description.classes, path));
        description.classes = static_cast<std::uint32_t>(names.size());
        description.class_names = std::move(names);
    }
    const auto mean = json.find("mean");
    const auto deviation = json.find("std");
    if ((mean == json.end()) != (deviation == json.end()))
        return Error{"'mean' and 'std' come together or not at all", path.string()};
    if (mean != json.end()) {
        if (!mean->is_number() || !deviation->is_number()) return Error{"'mean' and 'std' must be numbers", path.string()};
        const PixelStatistics pixels{mean->get<double>(), deviation->get<double>()};
        if (!std::isfinite(pixels.mean) || !std::isfinite(pixels.deviation) || pixels.deviation <= 0)
            return Error{fmt::format("'mean' {} and 'std' {} must be finite, 'std' above 0", pixels.mean, pixels.deviation),
                         path.string()};
        description.pixels = pixels;
    }
    return description;
}

bool is_fashion(std::string_view name) { return name == "fashion-mnist" || name == "fashion_mnist" || name == "fmnist"; }

std::vector<std::string> usual_names(std::string_view name, std::uint32_t classes) {
    if ((name != "garments" && !is_fashion(name)) || classes != kGarmentClasses) return {};
    return {kGarmentNames.begin(), kGarmentNames.end()};
}

std::optional<PixelStatistics> usual_constants(std::string_view name) {
    if (name == "mnist") return PixelStatistics{0.1307, 0.3081};
    if (is_fashion(name)) return PixelStatistics{0.2860, 0.3530};
    return std::nullopt;
}

Result<LabeledImages> load_pair(const Path& images_path, const Path& labels_path, std::optional<std::uint32_t> classes) {
    MILLRACE_LET(images, read_idx(images_path));
    MILLRACE_LET(labels, read_idx(labels_path));
    if (images.shape.size() != 3)
        return Error{fmt::format("has {} dimensions; images have three (count, rows, columns)", images.shape.size()),
                     images_path.string()};
    if (labels.shape.size() != 1)
        return Error{fmt::format("has {} dimensions; labels have one", labels.shape.size()), labels_path.string()};
    if (images.shape[0] != labels.shape[0])
        return Error{fmt::format("has {} labels for the {} images of {}", labels.shape[0], images.shape[0],
                                 images_path.filename().string()),
                     labels_path.string()};
    if (images.shape[0] == 0 || images.shape[1] == 0 || images.shape[2] == 0)
        return Error{"holds no images", images_path.string()};
    for (std::size_t i = 0; classes && i < labels.values.size(); ++i)
        if (labels.values[i] >= *classes)
            return Error{fmt::format("label {} at index {} is out of range: {} classes are numbered 0 to {}; if there are more, "
                                     "{} beside it must say so: {{\"classes\": {}}}",
                                     labels.values[i], i, *classes, *classes - 1, kDescription,
                                     *std::max_element(labels.values.begin(), labels.values.end()) + 1),
                         labels_path.string()};
    return LabeledImages{images.shape[0], images.shape[1], images.shape[2], std::move(images.values), std::move(labels.values)};
}

}  // namespace

PixelStatistics measure_pixels(const LabeledImages& images, std::span<const std::uint32_t> indices) {
    std::array<std::uint64_t, 256> histogram{};
    const std::size_t size = std::size_t{images.rows} * images.columns;
    for (const std::uint32_t index : indices)
        for (std::size_t i = 0; i < size; ++i) ++histogram[images.pixels[index * size + i]];
    const double count = static_cast<double>(indices.size()) * static_cast<double>(size);
    if (count == 0) return {};
    double sum = 0;
    for (std::size_t level = 0; level < 256; ++level) sum += static_cast<double>(histogram[level]) * static_cast<double>(level);
    const double mean = sum / count;
    double squares = 0;
    for (std::size_t level = 0; level < 256; ++level) {
        const double away = static_cast<double>(level) - mean;
        squares += static_cast<double>(histogram[level]) * away * away;
    }
    return PixelStatistics{mean / 255, std::sqrt(squares / count) / 255};
}

SampleSet samples_of(const ImageSet& set) {
    SampleSet samples;
    samples.name = set.name;
    samples.unit = "images";
    samples.preparation.shape = {static_cast<std::int32_t>(set.train.rows), static_cast<std::int32_t>(set.train.columns), 1};
    samples.preparation.mean = {static_cast<float>(set.pixels.mean)};
    samples.preparation.deviation = {static_cast<float>(set.pixels.deviation)};
    samples.preparation.classes = static_cast<std::int32_t>(set.classes);
    samples.preparation.class_names = set.class_names;
    samples.count = static_cast<std::int32_t>(set.train.count + set.test.count);
    samples.width = static_cast<std::int32_t>(samples.preparation.shape.size());
    std::vector<std::uint8_t> pixels;
    pixels.reserve(set.train.pixels.size() + set.test.pixels.size());
    io::Checksum64 sum;
    for (const LabeledImages* images : {&set.train, &set.test}) {
        pixels.insert(pixels.end(), images->pixels.begin(), images->pixels.end());
        samples.labels.insert(samples.labels.end(), images->labels.begin(), images->labels.end());
        sum.update(std::as_bytes(std::span(images->pixels)));
        sum.update(std::as_bytes(std::span(images->labels)));
    }
    samples.bytes = std::move(pixels);
    samples.checksum = sum.value();
    samples.part(Part::train).assign(set.split.training.begin(), set.split.training.end());
    samples.part(Part::validation).assign(set.split.validation.begin(), set.split.validation.end());
    samples.part(Part::test).resize(set.test.count);
    std::iota(samples.part(Part::test).begin(), samples.part(Part::test).end(), static_cast<std::int32_t>(set.train.count));
    return samples;
}

Result<std::vector<Inputs>> open_images(const Path& path, const Preparation& prepared) {
    std::error_code ignored;
    const bool folder = std::filesystem::is_directory(path, ignored);
    std::vector<Inputs> all;
    for (const Path& file : folder ? std::vector{path / kTrainImages, path / kTestImages} : std::vector{path}) {
        if (!std::filesystem::exists(file, ignored) && !std::filesystem::exists(Path(file) += ".gz", ignored)) continue;
        MILLRACE_LET(read, read_idx(file));
        const auto images = std::make_shared<const IdxArray>(std::move(read));
        const auto& [height, width, channels] = prepared.shape;
        if (images->shape.size() != 3 || channels != 1 || std::cmp_not_equal(images->shape[1], height) ||
            std::cmp_not_equal(images->shape[2], width))
            return Error{fmt::format("has the shape [{}]; images of {} x {} x {} would be right", fmt::join(images->shape, ", "),
                                     height, width, channels),
                         file.string()};
        Inputs& inputs = all.emplace_back(Inputs{"images", static_cast<std::int64_t>(images->shape[0])});
        inputs.read = [images, bytes = prepared.width()](std::int64_t begin, std::int64_t count) {
            const auto from = images->values.begin() + begin * static_cast<std::int64_t>(bytes);
            return InputRows{{from, from + count * static_cast<std::int64_t>(bytes)}, {}};
        };
    }
    return all;
}

Result<ImageSet> load_image_set(const Path& folder, double validation, std::uint64_t split_seed) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(folder, ignored))
        return Error{
            fmt::format("no such folder; it should hold {}, {}, {} and {} (`millrace data make garments --out {}` writes a set)",
                        kTrainImages, kTrainLabels, kTestImages, kTestLabels, folder.string()),
            folder.string()};
    MILLRACE_LET(description, read_image_description(folder / kDescription));
    ImageSet set;
    set.name = description.name.value_or(folder_name(folder));
    MILLRACE_LET(train, load_pair(folder / kTrainImages, folder / kTrainLabels, description.classes));
    MILLRACE_LET(test, load_pair(folder / kTestImages, folder / kTestLabels, description.classes));
    const std::uint32_t most = std::max(*std::ranges::max_element(train.labels), *std::ranges::max_element(test.labels));
    set.classes = description.classes.value_or(most + 1);
    set.class_names = description.class_names.empty() ? usual_names(set.name, set.classes) : description.class_names;
    if (train.rows != test.rows || train.columns != test.columns)
        return Error{
            fmt::format("images are {} x {}, those for training {} x {}", test.rows, test.columns, train.rows, train.columns),
            (folder / kTestImages).string()};
    set.train = std::move(train);
    set.test = std::move(test);
    set.split = split_validation(set.train.count, validation, split_seed);
    if (const auto usual = usual_constants(set.name); description.pixels || usual) {
        set.pixels = description.pixels ? *description.pixels : *usual;
    } else {
        set.pixels = measure_pixels(set.train, set.split.training);
        if (set.pixels.deviation == 0)
            return Error{"all pixels are equal: there is nothing to learn", (folder / kTrainImages).string()};
    }
    return set;
}

}  // namespace millrace::data
