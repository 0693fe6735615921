#include "data/arrays/array_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "data/forms.h"
#include "io/array_file.h"
#include "io/byte_source.h"
#include "io/checksum.h"

namespace millrace::data {
namespace {

constexpr std::size_t kArrayCap = std::size_t{32} << 30;
constexpr std::uint64_t kMostChannelsOfArray = 4, kMostArrayClasses = 65'536;
constexpr std::string_view kInputs[] = {"x", "images", "vectors"}, kAnswers[] = {"y", "labels", "targets"};

/// Arrays by name, and the bytes they point into.
struct Arrays {
    std::vector<std::vector<std::byte>> bytes;
    std::map<std::string, io::NumberArray> named;
};

Status add_file(const Path& file, Arrays& arrays) {
    MILLRACE_LET(bytes, io::read_unpacked(file, kArrayCap));
    std::map<std::string, std::vector<std::byte>> members;
    if (unpacked_ending(file) == ".npz")
        MILLRACE_SET(members, io::parse_npz(bytes, file, kArrayCap));
    else
        members[(file.extension() == ".gz" ? file.stem() : file.filename()).stem().string()] = std::move(bytes);
    for (auto& [name, member] : members) {
        const Path place = members.size() > 1 ? Path(fmt::format("{}: {}", file.string(), name)) : file;
        MILLRACE_LET(array, io::parse_npy(member, place));
        std::string lower = name;
        std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        if (!array.shape.empty()) arrays.named[lower] = array;
        arrays.bytes.push_back(std::move(member));
    }
    return base::ok();
}

/// Inputs and answers of one part.
struct ArrayPair {
    Part part;
    io::NumberArray x, y;
};

const io::NumberArray* find_array(const Arrays& arrays, std::span<const std::string_view> names, std::string_view part) {
    for (const std::string_view name : names)
        for (const std::string& key :
             {part.empty() ? std::string(name) : fmt::format("{}_{}", name, part), fmt::format("{}_{}", part, name)})
            if (const auto at = arrays.named.find(key); at != arrays.named.end()) return &at->second;
    return nullptr;
}

Result<std::vector<ArrayPair>> pairs_of(const Arrays& arrays, const Path& place) {
    constexpr std::pair<const char*, Part> kNames[] = {
        {"", Part::train}, {"train", Part::train}, {"valid", Part::validation}, {"val", Part::validation}, {"test", Part::test}};
    std::vector<ArrayPair> pairs;
    for (const auto& [name, part] : kNames) {
        const io::NumberArray *x = find_array(arrays, kInputs, name), *y = find_array(arrays, kAnswers, name);
        if (x == nullptr && y == nullptr) continue;
        if (x == nullptr || y == nullptr || x->shape[0] != y->shape[0])
            return Error{fmt::format("has {} inputs and {} answers{}{}", x != nullptr ? x->shape[0] : 0,
                                     y != nullptr ? y->shape[0] : 0, *name != 0 ? " called " : "", name),
                         place.string()};
        pairs.push_back({part, *x, *y});
    }
    if (pairs.empty())
        return Error{"has no arrays x and y (or images and labels, or x_train, y_train, x_test and y_test)", place.string()};
    const std::vector<std::uint64_t>& first = pairs.front().x.shape;
    for (const ArrayPair& pair : pairs)
        if (!std::equal(pair.x.shape.begin() + 1, pair.x.shape.end(), first.begin() + 1, first.end()) ||
            pair.x.type != pairs.front().x.type || pair.y.count() != pair.x.shape[0])
            return Error{"has parts of other shapes or types than the first, or more than one answer for an input",
                         place.string()};
    return pairs;
}

bool is_image(const io::NumberArray& x) {
    return x.type == io::ElementType::kU8 &&
           (x.shape.size() == 3 || (x.shape.size() == 4 && x.shape[3] >= 1 && x.shape[3] <= kMostChannelsOfArray));
}

void add_images(const std::vector<ArrayPair>& pairs, SampleSet& set) {
    const std::vector<std::uint64_t>& shape = pairs.front().x.shape;
    set.preparation.shape = {static_cast<std::int32_t>(shape[1]), static_cast<std::int32_t>(shape[2]),
                             shape.size() == 4 ? static_cast<std::int32_t>(shape[3]) : 1};
    std::vector<std::uint8_t> bytes;
    for (const ArrayPair& pair : pairs) {
        const auto* first = reinterpret_cast<const std::uint8_t*>(pair.x.values.data());
        bytes.insert(bytes.end(), first, first + pair.x.values.size());
    }
    set.unit = "images";
    set.own(std::move(bytes));
}

/// Columns to mean 0 and deviation 1 over the training part, or as the checkpoint says.
Status add_vectors(const std::vector<ArrayPair>& pairs, const Preparation* stored, const Path& place, SampleSet& set) {
    for (const ArrayPair& pair : pairs)
        for (std::uint64_t i = 0; i < pair.x.count(); ++i) {
            const double value = pair.x.at(i);
            if (!std::isfinite(value)) return Error{"has inputs that are not finite", place.string()};
            set.numbers.push_back(static_cast<float>(value));
        }
    const auto width = static_cast<std::size_t>(set.width);
    Preparation& prepared = set.preparation;
    if (stored != nullptr) {
        prepared.mean = stored->mean, prepared.deviation = stored->deviation;
    } else {
        std::vector<double> mean(width), squares(width);
        const auto count = static_cast<double>(std::max<std::size_t>(1, set.part(Part::train).size()));
        const auto for_each = [&](auto&& body) {
            for (const std::int32_t sample : set.part(Part::train))
                for (std::size_t d = 0; d < width; ++d)
                    body(d, double{set.numbers[static_cast<std::size_t>(sample) * width + d]});
        };
        for_each([&](std::size_t d, double value) { mean[d] += value / count; });
        for_each([&](std::size_t d, double value) { squares[d] += (value - mean[d]) * (value - mean[d]) / count; });
        prepared.mean.assign(mean.begin(), mean.end());
        for (const double square : squares)
            prepared.deviation.push_back(square > 0 ? static_cast<float>(std::sqrt(square)) : 1.0f);
    }
    if (prepared.mean.size() != width)
        return Error{fmt::format("has inputs of {} numbers; the training data had {}", width, prepared.mean.size()),
                     place.string()};
    for (std::size_t i = 0; i < set.numbers.size(); ++i)
        set.numbers[i] = (set.numbers[i] - prepared.mean[i % width]) / prepared.deviation[i % width];
    return base::ok();
}

Status add_answers(const std::vector<ArrayPair>& pairs, const SampleRequest& request, SampleSet& set) {
    const io::ElementType type = pairs.front().y.type;
    const bool numbers = request.stored != nullptr ? request.stored->target.has_value()
                         : request.task != "auto"  ? request.task == "regression"
                                                   : type == io::ElementType::kF32 || type == io::ElementType::kF64;
    std::vector<double> values;
    for (const ArrayPair& pair : pairs)
        for (std::uint64_t i = 0; i < pair.y.count(); ++i) {
            const double value = pair.y.at(i);
            const bool fine = numbers
                                  ? std::isfinite(value)
                                  : value >= 0 && value < static_cast<double>(kMostArrayClasses) && value == std::floor(value);
            if (!fine)
                return Error{fmt::format("has the answer {}; {} would be right", value,
                                         numbers ? "a finite number" : "the number of a class, 0 to 65535,"),
                             request.path.string()};
            values.push_back(value);
        }
    if (numbers) {
        if (request.stored != nullptr) set.preparation.target = request.stored->target;
        scale_targets(set, "y", values);
        return base::ok();
    }
    for (const double value : values) set.labels.push_back(static_cast<std::int32_t>(value));
    const auto found = static_cast<std::int32_t>(*std::ranges::max_element(values)) + 1;
    set.preparation.classes = request.stored != nullptr ? request.stored->classes : found;
    if (found > set.preparation.classes || set.preparation.classes < 2)
        return Error{
            fmt::format("has labels up to {}; {} would be right", found - 1,
                        request.stored != nullptr ? fmt::format("{}", set.preparation.classes - 1) : "two classes at least"),
            request.path.string()};
    return base::ok();
}

}  // namespace

Result<SampleSet> load_array_set(const SampleRequest& request) {
    Arrays arrays;
    std::error_code failure;
    if (std::filesystem::is_directory(request.path, failure)) {
        for (std::filesystem::directory_iterator at(request.path, failure), end; !failure && at != end; at.increment(failure))
            if (form_of(at->path()) == Form::arrays && !at->is_directory()) MILLRACE_TRY(add_file(at->path(), arrays));
    } else {
        MILLRACE_TRY(add_file(request.path, arrays));
    }
    MILLRACE_LET(pairs, pairs_of(arrays, request.path));
    std::uint64_t count = 0;
    for (const ArrayPair& pair : pairs) count += pair.x.shape[0];
    const std::uint64_t width = count > 0 ? pairs.front().x.count() / std::max<std::uint64_t>(1, pairs.front().x.shape[0]) : 0;
    if (count == 0 || width == 0 || count > 1u << 30 || width > 1u << 24)
        return Error{fmt::format("has {} inputs of {} numbers each", count, width), request.path.string()};
    SampleSet set;
    set.name = folder_name(request.path);
    set.count = static_cast<std::int32_t>(count);
    set.width = static_cast<std::int32_t>(width);
    const auto has = [&](Part part) { return std::ranges::find(pairs, part, &ArrayPair::part) != pairs.end(); };
    std::int32_t first = 0;
    for (const ArrayPair& pair : pairs) {
        const auto samples = static_cast<std::int32_t>(pair.x.shape[0]);
        if (pair.part == Part::train)
            split_samples(set, first, samples, has(Part::validation) ? 0 : request.validation,
                          pairs.size() > 1 ? 0 : request.test, request.seed);
        else
            for (std::int32_t i = 0; i < samples; ++i) set.part(pair.part).push_back(first + i);
        first += samples;
    }
    if (is_image(pairs.front().x)) {
        add_images(pairs, set);
        measure_channels(set);
    } else {
        MILLRACE_TRY(add_vectors(pairs, request.stored, request.path, set));
    }
    MILLRACE_TRY(add_answers(pairs, request, set));
    io::Checksum64 sum;
    sum.update(std::as_bytes(set.bytes));
    sum.update(std::as_bytes(std::span(set.numbers)));
    sum.update(std::as_bytes(std::span(set.labels)));
    sum.update(std::as_bytes(std::span(set.targets)));
    set.checksum = sum.value();
    return set;
}

}  // namespace millrace::data
