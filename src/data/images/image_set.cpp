#include "data/images/image_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "data/forms.h"
#include "data/images/garments.h"
#include "io/checksum.h"
#include "io/packing.h"

namespace millrace::data {
namespace {

constexpr std::size_t kFileCap = std::size_t{4} << 30;
constexpr std::size_t kMaxDimensions = 3;
constexpr std::uint8_t kUnsignedByte = 0x08;

std::uint32_t big_endian(std::span<const std::byte> bytes) {
    std::uint32_t value = 0;
    for (const std::byte byte : bytes.first(4)) value = (value << 8) | static_cast<std::uint32_t>(byte);
    return value;
}

/// The product of the extents; nothing when it overflows.
bool volume(std::span<const std::uint32_t> shape, std::uint64_t& count) {
    count = 1;
    for (const std::uint32_t extent : shape)
        if (__builtin_mul_overflow(count, std::uint64_t{extent}, &count)) return false;
    return true;
}

/// dataset.json, every part optional.
struct ImageSetDescription {
    std::string name;
    std::optional<Moments> pixels;
    std::int32_t classes = 0;  ///< 0: it does not say
    std::vector<std::string> class_names;
};

Result<std::vector<std::string>> read_class_names(const nlohmann::json& json, std::int32_t classes, const Path& path) {
    std::vector<std::string> names;
    // They are printed, so nothing may move the cursor.
    for (const auto& name : json.is_array() ? json : nlohmann::json::array())
        if (name.is_string() &&
            std::ranges::none_of(name.get<std::string>(), [](unsigned char c) { return c < ' ' || c == 127; }))
            names.push_back(name.get<std::string>());
    if (names.empty() || names.size() != json.size() || names.size() > 256)
        return Error{"'class_names' must be a list of 1 to 256 texts without control characters", path.string()};
    if (classes != 0 && std::cmp_not_equal(classes, names.size()))
        return Error{fmt::format("'class_names' has {} names for {} classes", names.size(), classes), path.string()};
    return names;
}

Result<ImageSetDescription> read_image_description(const Path& folder) {
    const Path path = folder / kDescription;
    ImageSetDescription description;
    description.name = folder_name(folder);
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
        description.classes = at->get<std::int32_t>();
    }
    if (const auto at = json.find("class_names"); at != json.end()) {
        MILLRACE_LET(names, read_class_names(*at, description.classes, path));
        description.classes = static_cast<std::int32_t>(names.size());
        description.class_names = std::move(names);
    }
    const auto mean = json.find("mean");
    const auto deviation = json.find("std");
    if ((mean == json.end()) != (deviation == json.end()))
        return Error{"'mean' and 'std' come together or not at all", path.string()};
    if (mean != json.end()) {
        if (!mean->is_number() || !deviation->is_number()) return Error{"'mean' and 'std' must be numbers", path.string()};
        const Moments pixels{mean->get<double>(), deviation->get<double>()};
        if (!std::isfinite(pixels.mean) || !std::isfinite(pixels.deviation) || pixels.deviation <= 0)
            return Error{fmt::format("'mean' {} and 'std' {} must be finite, 'std' above 0", pixels.mean, pixels.deviation),
                         path.string()};
        description.pixels = pixels;
    }
    return description;
}

bool is_fashion(std::string_view name) { return name == "fashion-mnist" || name == "fashion_mnist" || name == "fmnist"; }

std::vector<std::string> usual_names(std::string_view name, std::int32_t classes) {
    if ((name != "garments" && !is_fashion(name)) || classes != kGarmentClasses) return {};
    return {kGarmentNames.begin(), kGarmentNames.end()};
}

std::optional<Moments> usual_constants(std::string_view name) {
    if (name == "mnist") return Moments{0.1307, 0.3081};
    if (is_fashion(name)) return Moments{0.2860, 0.3530};
    return std::nullopt;
}

/// Images and their labels behind those of the set, which have the same size. Gives how many. `classes` 0: as many as there are.
Result<std::int32_t> add_images(SampleSet& set, const Path& images_path, const Path& labels_path, std::int32_t classes,
                                io::Checksum64& sum) {
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
    if (images.values.empty()) return Error{"holds no images", images_path.string()};
    constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (std::uint64_t{images.shape[1]} * images.shape[2] > kMost || std::uint64_t{images.shape[0]} + set.count > kMost)
        return Error{fmt::format("{} images of {} x {}; up to {} images and pixels each would be right", images.shape[0],
                                 images.shape[1], images.shape[2], kMost),
                     images_path.string()};
    for (std::size_t i = 0; classes > 0 && i < labels.values.size(); ++i)
        if (labels.values[i] >= classes)
            return Error{fmt::format("label {} at index {} is out of range: {} classes are numbered 0 to {}; if there are more, "
                                     "{} beside it must say so: {{\"classes\": {}}}",
                                     labels.values[i], i, classes, classes - 1, kDescription,
                                     *std::ranges::max_element(labels.values) + 1),
                         labels_path.string()};
    const Shape shape{static_cast<std::int32_t>(images.shape[1]), static_cast<std::int32_t>(images.shape[2]), 1};
    Shape& known = set.preparation.shape;
    if (set.count == 0) known = shape;
    if (shape != known)
        return Error{
            fmt::format("images are {} x {}, those for training {} x {}", shape.height, shape.width, known.height, known.width),
            images_path.string()};
    const auto count = static_cast<std::int32_t>(images.shape[0]);
    set.count += count;
    sum.update(std::as_bytes(std::span(images.values)));
    sum.update(std::as_bytes(std::span(labels.values)));
    set.labels.insert(set.labels.end(), labels.values.begin(), labels.values.end());
    if (set.bytes.empty()) {
        set.bytes = std::move(images.values);
    } else {
        set.bytes.reserve(set.bytes.size() + images.values.size());  // what doubling leaves would be planned as held
        set.bytes.insert(set.bytes.end(), images.values.begin(), images.values.end());
    }
    return count;
}

}  // namespace

Result<IdxArray> parse_idx(std::span<const std::byte> bytes, const Path& place) {
    const std::string where = place.string();
    if (bytes.size() < 4) return Error{fmt::format("has {} bytes; an IDX file starts with 4: truncated", bytes.size()), where};
    if (bytes[0] != std::byte{0} || bytes[1] != std::byte{0})
        return Error{fmt::format("starts with magic 0x{:08x}; an IDX file starts with 0x0000", big_endian(bytes)), where};
    if (static_cast<std::uint8_t>(bytes[2]) != kUnsignedByte)
        return Error{
            fmt::format("holds values of type 0x{:02x}; only unsigned bytes (0x08) are read", static_cast<unsigned>(bytes[2])),
            where};
    const auto dimensions = static_cast<std::size_t>(bytes[3]);
    if (dimensions < 1 || dimensions > kMaxDimensions)
        return Error{fmt::format("claims {} dimensions; 1 to {} are read", dimensions, kMaxDimensions), where};
    const std::size_t header = 4 + 4 * dimensions;
    if (bytes.size() < header) return Error{fmt::format("ends inside its header of {} bytes: truncated", header), where};

    IdxArray array;
    for (std::size_t i = 0; i < dimensions; ++i) array.shape.push_back(big_endian(bytes.subspan(4 + 4 * i)));
    const std::span<const std::byte> values = bytes.subspan(header);
    std::uint64_t count = 0;
    if (!volume(array.shape, count) || count != values.size())
        return Error{
            fmt::format("the header says [{}] values but {} bytes follow it: {}", fmt::join(array.shape, " x "), values.size(),
                        count > values.size() ? "truncated, or the header is wrong" : "bytes left over, or the header is wrong"),
            where};
    array.values.resize(values.size());
    std::ranges::transform(values, array.values.begin(), [](std::byte byte) { return static_cast<std::uint8_t>(byte); });
    return array;
}

Result<IdxArray> read_idx(const Path& path) {
    std::error_code ignored;
    const Path packed = Path(path) += ".gz";
    const bool only_packed = !std::filesystem::exists(path, ignored) && std::filesystem::exists(packed, ignored);
    MILLRACE_LET(bytes, io::read_unpacked(only_packed ? packed : path, kFileCap));
    return parse_idx(bytes, path);
}

std::vector<std::byte> idx_header(std::span<const std::uint32_t> shape) {
    MILLRACE_ASSERT(!shape.empty() && shape.size() <= kMaxDimensions, "IDX arrays have one to three dimensions");
    std::vector<std::byte> header{std::byte{0}, std::byte{0}, std::byte{kUnsignedByte}, static_cast<std::byte>(shape.size())};
    for (const std::uint32_t extent : shape)
        for (const int shift : {24, 16, 8, 0}) header.push_back(static_cast<std::byte>(extent >> shift));
    return header;
}

Status write_idx(const Path& path, std::span<const std::uint32_t> shape, std::span<const std::uint8_t> values) {
    std::uint64_t count = 0;
    MILLRACE_ASSERT(volume(shape, count) && count == values.size(), path.string());
    const std::vector<std::byte> header = idx_header(shape);
    const auto fill = [&](io::FileWriter& writer) -> Status {
        MILLRACE_TRY(writer.write(header));
        return writer.write(std::as_bytes(values));
    };
    MILLRACE_TRY(io::write_atomically(path, fill));
    return base::ok();
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

Result<SampleSet> load_image_set(const SampleRequest& request) {
    const Path& folder = request.path;
    std::error_code ignored;
    if (!std::filesystem::is_directory(folder, ignored))
        return Error{
            fmt::format("no such folder; it should hold {}, {}, {} and {} (`millrace data make garments --out {}` writes a set)",
                        kTrainImages, kTrainLabels, kTestImages, kTestLabels, folder.string()),
            folder.string()};
    MILLRACE_LET(description, read_image_description(folder));
    SampleSet set;
    set.name = description.name;
    set.unit = "images";
    io::Checksum64 sum;
    MILLRACE_LET(train, add_images(set, folder / kTrainImages, folder / kTrainLabels, description.classes, sum));
    MILLRACE_LET(test, add_images(set, folder / kTestImages, folder / kTestLabels, description.classes, sum));
    set.checksum = sum.value();
    set.width = static_cast<std::int32_t>(set.preparation.shape.size());
    add_files(set, {{Part::train, train}, {Part::test, test}}, request);
    Preparation& prepared = set.preparation;
    prepared.classes = description.classes > 0 ? description.classes : *std::ranges::max_element(set.labels) + 1;
    prepared.class_names = description.class_names.empty() ? usual_names(set.name, prepared.classes) : description.class_names;
    if (!description.pixels) description.pixels = usual_constants(set.name);
    if (description.pixels) {
        prepared.mean = {static_cast<float>(description.pixels->mean)};
        prepared.deviation = {static_cast<float>(description.pixels->deviation)};
    } else {
        MILLRACE_TRY(measure_channels(set));
        if (prepared.deviation.front() == 1)  // shares of 255 spread by a half at most
            return Error{"all pixels are equal: there is nothing to learn", (folder / kTrainImages).string()};
    }
    if (request.stored != nullptr && prepared.classes > request.stored->classes)
        return Error{
            fmt::format("has labels up to {}; the training data had {} classes", prepared.classes - 1, request.stored->classes),
            folder.string()};
    return set;
}

}  // namespace millrace::data
