#include "data/recordings/recording_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/nearest.h"

namespace millrace::data {
namespace {

using io::ElementType;

constexpr std::uint64_t kMostRows = 1u << 30;    // windows of a part: their numbers stay below 2^31
constexpr std::uint64_t kBlockValues = 2 << 20;  // read at once

/// A small data set as a whole.
Status read_all(const io::Hdf5Dataset& set, std::span<std::byte> out) { return set.read_rows(0, set.rows(), out); }

/// One file of the folder, opened.
struct PartFile {
    std::shared_ptr<const io::Hdf5File> file;
    Path path;
    std::vector<std::int32_t> together;
    std::int32_t width = 0;
    std::uint64_t count = 0;

    [[nodiscard]] Error bad(const std::string& what) const { return Error{what, path.string()}; }
};

Result<PartFile> open_part(const Path& path) {
    if (std::error_code ignored; !std::filesystem::exists(path, ignored))
        return Error{
            "is missing; `millrace data make hydrophone --out FOLDER` makes such a set, `millrace data build-leak` one of "
            "your own sounds",
            path.string()};
    MILLRACE_LET(file, io::Hdf5File::open(path));
    PartFile part{std::move(file), path, {}, 0, 0};
    const io::Hdf5Description* mel = part.file->find("segments_mel");
    if (mel == nullptr) return part.bad("there is no data set segments_mel; `millrace data build-leak` writes such files");
    const std::vector<std::uint64_t>& dims = mel->dims;
    const bool channel = dims.size() == 6 && dims[3] == 1;
    if ((dims.size() != 5 && !channel) || dims.back() != 1 || (mel->type != ElementType::kF16 && mel->type != ElementType::kF32))
        return part.bad(
            fmt::format("{}; F16 or F32 [recordings, long windows, short windows, bands, 1] would be right, with or "
                        "without a channel behind the windows",
                        mel->text()));
    std::uint64_t width = 1;
    for (std::size_t i = 3; i < dims.size(); ++i) width *= dims[i];
    if (dims[1] == 0 || dims[2] == 0 || width == 0 || dims[1] > 65536 || dims[2] > 65536 || width > 65536 ||
        dims[1] * dims[2] > kMostRows || dims[0] > kMostRows / (dims[1] * dims[2]))
        return part.bad(
            fmt::format("{}: at least one and at most 65536 windows and features of each, and 2^30 windows in all, "
                        "would be right",
                        mel->text()));
    part.together = {static_cast<std::int32_t>(dims[1]), static_cast<std::int32_t>(dims[2])};
    part.width = static_cast<std::int32_t>(width);
    part.count = dims[0];
    const io::Hdf5Description* labels = part.file->find("labels");
    if (labels == nullptr || labels->dims != std::vector<std::uint64_t>{part.count})
        return part.bad(fmt::format("{}; one label for each of the {} recordings would be right",
                                    labels == nullptr ? "there is no data set labels" : labels->text(), part.count));
    return part;
}

template <class T>
std::vector<std::int32_t> whole_numbers(const std::vector<std::byte>& bytes) {
    std::vector<T> given(bytes.size() / sizeof(T));
    std::memcpy(given.data(), bytes.data(), given.size() * sizeof(T));
    std::vector<std::int32_t> numbers;
    numbers.reserve(given.size());
    for (const T value : given)
        numbers.push_back(value >= 0 && static_cast<std::uint64_t>(value) < 32768 ? static_cast<std::int32_t>(value) : -1);
    return numbers;
}

base::Status read_labels(const PartFile& part, std::size_t classes, std::vector<std::int32_t>& labels) {
    MILLRACE_LET(set, part.file->dataset("labels"));
    std::vector<std::byte> bytes(set->rows() * set->row_bytes());
    MILLRACE_TRY(read_all(*set, bytes));
    switch (*set->description().type) {
        case ElementType::kU8: labels = whole_numbers<std::uint8_t>(bytes); break;
        case ElementType::kI16: labels = whole_numbers<std::int16_t>(bytes); break;
        case ElementType::kI32: labels = whole_numbers<std::int32_t>(bytes); break;
        case ElementType::kI64: labels = whole_numbers<std::int64_t>(bytes); break;
        default: return part.bad(fmt::format("{}; whole numbers would be right", set->description().text()));
    }
    for (std::size_t i = 0; i < labels.size(); ++i)
        if (labels[i] < 0 || static_cast<std::size_t>(labels[i]) >= classes)
            return part.bad(fmt::format("labels: recording {} has a label outside of the {} classes", i, classes));
    return base::ok();
}

Result<std::shared_ptr<const FeatureFile>> open_features(const PartFile& part) {
    MILLRACE_LET(set, part.file->dataset("segments_mel"));
    const std::uint64_t windows = static_cast<std::uint64_t>(part.together[0]) * static_cast<std::uint64_t>(part.together[1]);
    return std::make_shared<const FeatureFile>(std::move(set), part.path, windows * static_cast<std::uint64_t>(part.width));
}

/// Of the training part, block by block where it is not in memory.
Result<Scaling> measure_features(const RecordingSet& set) {
    if (!set.file(Part::train)) return measure(set.part(Part::train), set.width);
    const FeatureFile& file = *set.file(Part::train);
    ColumnStatistics statistics(set.width);
    const std::uint64_t block = std::max<std::uint64_t>(1, kBlockValues / (file.values() * file.together())) * file.together();
    std::vector<std::uint16_t> features;
    for (std::uint64_t first = 0; first < file.count(); first += block) {
        const std::uint64_t count = std::min(block, file.count() - first);
        features.resize(count * file.values());
        MILLRACE_TRY(file.read(first, count, features));
        statistics.add(features);
    }
    return statistics.scaling();
}

Result<std::vector<std::string>> class_names(const PartFile& part) {
    MILLRACE_LET(text, part.file->attribute("labels_json"));
    const auto parsed = base::json_from(text);
    std::vector<std::string> names;
    if (parsed.is_array())
        for (const auto& name : parsed)
            if (name.is_string()) names.push_back(name.get<std::string>());
    if (names.empty() || names.size() != parsed.size() || names.size() > 32768)
        return part.bad("attribute labels_json is no list of names, such as [\"NOLEAK\", \"LEAK\"]");
    return names;
}

/// Whether the builder says so; files of others say nothing.
bool repeats(const PartFile& part) {
    const auto text = part.file->attribute("config_json");
    const auto config = base::json_from(text.ok() ? *text : "");
    return config.is_object() && config.contains("repeat") && config["repeat"] == true;
}

/// The label of the class that is looked for. `asked` is empty where the user leaves it to the set.
Result<std::int32_t> positive_label(const std::vector<std::string>& names, const std::string& asked, const Path& folder) {
    const std::string wanted = asked.empty() ? "LEAK" : asked;
    const auto found = std::ranges::find(names, wanted);
    if (found != names.end()) return static_cast<std::int32_t>(found - names.begin());
    if (asked.empty() && names.size() == 2) return 1;  // NOB and B, as `data build-leak --positive B` writes them
    const std::string nearest = base::nearest_name(wanted, names);
    return Error{fmt::format("there is no class {}{}; data.positive is one of {}", wanted,
                             nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest), fmt::join(names, ", ")),
                 folder.string()};
}

/// mel_mean and mel_std of a file; null where it has none.
Result<std::shared_ptr<const Scaling>> scaling_of(const PartFile& part) {
    Scaling scaling;
    for (auto [name, values] : {std::pair{"mel_mean", &scaling.mean}, std::pair{"mel_std", &scaling.deviation}}) {
        const io::Hdf5Description* found = part.file->find(name);
        if (found == nullptr) return std::shared_ptr<const Scaling>();
        if (found->dims != std::vector<std::uint64_t>{static_cast<std::uint64_t>(part.width)} || found->type != ElementType::kF32)
            return part.bad(fmt::format("{}; F32 [{}] would be right", found->text(), part.width));
        MILLRACE_LET(set, part.file->dataset(name));
        values->resize(static_cast<std::size_t>(part.width));
        MILLRACE_TRY(read_all(*set, std::as_writable_bytes(std::span(*values))));
    }
    for (std::size_t i = 0; i < scaling.mean.size(); ++i)
        if (!std::isfinite(scaling.mean[i]) || !std::isfinite(scaling.deviation[i]) || !(scaling.deviation[i] > 0))
            return part.bad(fmt::format("mel_mean and mel_std of band {} are no mean and deviation", i));
    return std::make_shared<const Scaling>(std::move(scaling));
}

}  // namespace

Result<RecordingSet> load_recording_set(const Path& folder, const RecordingRequest& request) {
    RecordingSet set;
    set.name = folder_name(folder);
    for (const Part which : {Part::train, Part::validation, Part::test}) {
        const Path path = folder / kRecordingFiles[index_of(which)];
        std::error_code ignored;
        if (which != Part::train && !std::filesystem::exists(path, ignored)) continue;
        MILLRACE_LET(part, open_part(path));
        MILLRACE_LET(names, class_names(part));
        if (which == Part::train) {
            set.classes.names = names;
            set.classes.together = part.together;
            set.classes.repeats = repeats(part);
            set.windows = part.together[0] * part.together[1];
            set.width = part.width;
            MILLRACE_LET(own, scaling_of(part));
            set.scaling = request.scaling ? request.scaling : own;
        } else if (names != set.classes.names || part.together != set.classes.together || part.width != set.width) {
            return part.bad(fmt::format("its windows ({} x {} of {} features) or classes are not those of {}", part.together[0],
                                        part.together[1], part.width, kRecordingFiles[0]));
        }
        Recordings& recordings = set.parts[index_of(which)];
        recordings.count = static_cast<std::int32_t>(part.count);
        MILLRACE_TRY(read_labels(part, names.size(), recordings.labels));
        MILLRACE_LET(file, open_features(part));
        if (request.resident)
            MILLRACE_SET(recordings.features, file->read_all());
        else
            set.files[index_of(which)] = file;
    }
    MILLRACE_SET(set.classes.positive, positive_label(set.classes.names, request.positive, folder));
    if (request.scaling && request.scaling->mean.size() != static_cast<std::size_t>(set.width))
        return Error{fmt::format("its windows have {} features, those of the run {}", set.width, request.scaling->mean.size()),
                     folder.string()};
    if (!set.scaling) {
        MILLRACE_LET(scaling, measure_features(set));
        set.scaling = std::make_shared<const Scaling>(std::move(scaling));
    }
    if (request.binary && set.classes.names.size() != 2) make_binary(set);
    count_classes(set);
    return set;
}

Result<std::uint64_t> resident_recording_bytes(const Path& folder) {
    std::uint64_t bytes = 0;
    for (const char* name : kRecordingFiles) {
        std::error_code ignored;
        if (name != kRecordingFiles[0] && !std::filesystem::exists(folder / name, ignored)) continue;
        MILLRACE_LET(part, open_part(folder / name));
        const std::uint64_t windows =
            part.count * static_cast<std::uint64_t>(part.together[0]) * static_cast<std::uint64_t>(part.together[1]);
        bytes += windows * (sizeof(std::uint16_t) * static_cast<std::uint64_t>(part.width) + sizeof(std::int32_t));
    }
    return bytes;
}

}  // namespace millrace::data
