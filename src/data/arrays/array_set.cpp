#include "data/forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "io/array_file.h"
#include "io/packing.h"

namespace millrace::data {
namespace {

constexpr std::size_t kArrayCap = std::size_t{32} << 30;
constexpr std::uint64_t kMostChannelsOfArray = 4, kMostArrayClasses = 65'536;
constexpr std::string_view kInputs[] = {"x", "images", "vectors"}, kAnswers[] = {"y", "labels", "targets"};

using Arrays = std::map<std::string, io::NumberArray>;  // by name, in lower case

void add(Arrays& arrays, std::string name, const io::NumberArray& array) {
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (!array.shape.empty()) arrays[name] = array;
}

Status add_file(const Path& file, Arrays& arrays) {
    if (unpacked_ending(file) == ".npy" && file.extension() != ".gz") {
        MILLRACE_LET(array, io::open_npy(file));
        add(arrays, file.stem().string(), array);
        return base::ok();
    }
    MILLRACE_LET(bytes, io::read_unpacked(file, kArrayCap));
    std::map<std::string, std::vector<std::byte>> members;
    if (unpacked_ending(file) == ".npz")
        MILLRACE_SET(members, io::parse_npz(bytes, file, kArrayCap));
    else
        members[file.stem().stem().string()] = std::move(bytes);
    for (auto& [name, member] : members) {
        const Path place = members.size() > 1 ? Path(fmt::format("{}: {}", file.string(), name)) : file;
        const auto kept = std::make_shared<const std::vector<std::byte>>(std::move(member));
        MILLRACE_LET(array, io::parse_npy(*kept, place));
        array.owner = kept;
        add(arrays, name, array);
    }
    return base::ok();
}

Result<Arrays> read_arrays(const Path& path) {
    Arrays arrays;
    std::error_code failure;
    if (!std::filesystem::is_directory(path, failure)) {
        MILLRACE_TRY(add_file(path, arrays));
        return arrays;
    }
    for (std::filesystem::directory_iterator at(path, failure), end; !failure && at != end; at.increment(failure))
        if (form_of(at->path()) == Form::arrays && !at->is_directory()) MILLRACE_TRY(add_file(at->path(), arrays));
    return arrays;
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
            if (const auto at = arrays.find(key); at != arrays.end()) return &at->second;
    return nullptr;
}

constexpr std::pair<const char*, Part> kArrayParts[] = {
    {"", Part::train}, {"train", Part::train}, {"valid", Part::validation}, {"val", Part::validation}, {"test", Part::test}};

Result<std::vector<ArrayPair>> pairs_of(const Arrays& arrays, const Path& place) {
    std::vector<ArrayPair> pairs;
    for (const auto& [name, part] : kArrayParts) {
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

/// Of the arrays one after the other: bytes as they are where `mean` is empty, else f32, by column less `mean` and divided by
/// `deviation`.
InputReader reader_of(const std::vector<ArrayPair>& pairs, std::size_t width, const std::vector<float>& mean,
                      const std::vector<float>& deviation) {
    return [=](std::int32_t first, std::span<std::byte> out) -> Status {
        const std::size_t size = mean.empty() ? sizeof(std::uint8_t) : sizeof(float);
        std::uint64_t at = static_cast<std::uint64_t>(first) * width;  // in what is left of the arrays
        std::vector<std::byte> memory;
        for (const ArrayPair& pair : pairs) {
            const std::uint64_t begin = std::min(at, pair.x.count()), count = std::min(pair.x.count() - begin, out.size() / size);
            at -= begin;
            if (count == 0) continue;
            MILLRACE_LET(part, pair.x.part(begin, count, memory));
            if (mean.empty()) std::ranges::copy(part.values, out.begin());
            auto* numbers = reinterpret_cast<float*>(out.data());
            for (std::uint64_t i = 0, d = begin % width; i < count && !mean.empty(); ++i, d = (d + 1) % width)
                numbers[i] = (static_cast<float>(part.at(i)) - mean[d]) / deviation[d];
            out = out.subspan(count * size);
        }
        return base::ok();
    };
}

/// Sets mean and deviation of each column over the training part of inputs that are not scaled yet.
Status measure_columns(SampleSet& set, const Path& place) {
    const auto width = static_cast<std::size_t>(set.width);
    std::vector<bool> trains(static_cast<std::size_t>(set.count));
    for (const std::int32_t sample : set.part(Part::train)) trains[static_cast<std::size_t>(sample)] = true;
    std::vector<double> mean(width), squares(width);
    double count = 0;
    bool finite = true;
    MILLRACE_TRY(set.for_inputs([&](std::int32_t first, std::span<const std::byte> inputs) {
        const auto* numbers = reinterpret_cast<const float*>(inputs.data());
        for (std::size_t i = 0, d = 0; i < inputs.size() / sizeof(float); ++i, d = (d + 1) % width) {
            finite = finite && std::isfinite(numbers[i]);
            if (!trains[static_cast<std::size_t>(first) + i / width]) continue;
            if (d == 0) count += 1;
            const double away = double{numbers[i]} - mean[d];
            mean[d] += away / count;
            squares[d] += away * (double{numbers[i]} - mean[d]);
        }
    }));
    if (!finite) return Error{"has inputs that are not finite", place.string()};
    set.preparation.mean.assign(mean.begin(), mean.end());
    for (const double square : squares)
        set.preparation.deviation.push_back(square > 0 ? static_cast<float>(std::sqrt(square / count)) : 1.0f);
    return base::ok();
}

/// Images as they are; vectors scaled by the training part, or as the checkpoint says.
Status add_inputs(const std::vector<ArrayPair>& pairs, const SampleRequest& request, SampleSet& set) {
    const auto width = static_cast<std::size_t>(set.width);
    Preparation& prepared = set.preparation;
    if (const io::NumberArray& x = pairs.front().x; is_image(x)) {
        prepared.shape = {static_cast<std::int32_t>(x.shape[1]), static_cast<std::int32_t>(x.shape[2]),
                          x.shape.size() == 4 ? static_cast<std::int32_t>(x.shape[3]) : 1};
        set.unit = "images";
        set.reader = reader_of(pairs, width, {}, {});
        return measure_channels(set);
    }
    set.reader = reader_of(pairs, width, std::vector<float>(width), std::vector<float>(width, 1));
    MILLRACE_TRY(measure_columns(set, request.path));
    if (request.stored != nullptr) prepared.mean = request.stored->mean, prepared.deviation = request.stored->deviation;
    if (prepared.mean.size() != width)
        return Error{fmt::format("has inputs of {} numbers; the training data had {}", width, prepared.mean.size()),
                     request.path.string()};
    set.reader = reader_of(pairs, width, prepared.mean, prepared.deviation);
    return base::ok();
}

Status add_answers(const std::vector<ArrayPair>& pairs, const SampleRequest& request, SampleSet& set) {
    const io::ElementType type = pairs.front().y.type;
    const bool numbers = request.stored != nullptr ? request.stored->target.has_value()
                         : request.task != "auto"  ? request.task == "regression"
                                                   : type == io::ElementType::kF32 || type == io::ElementType::kF64;
    std::vector<double> values;
    std::vector<std::byte> memory;
    for (const ArrayPair& pair : pairs) {
        MILLRACE_LET(y, pair.y.part(0, pair.y.count(), memory));
        for (std::uint64_t i = 0; i < y.count(); ++i) {
            const double value = y.at(i);
            const bool fine = numbers
                                  ? std::isfinite(value)
                                  : value >= 0 && value < static_cast<double>(kMostArrayClasses) && value == std::floor(value);
            if (!fine)
                return Error{fmt::format("has the answer {}; {} would be right", value,
                                         numbers ? "a finite number" : "the number of a class, 0 to 65535,"),
                             request.path.string()};
            values.push_back(value);
        }
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

/// Rows of an array as a model reads them.
Result<InputRows> read_rows(const io::NumberArray& x, const Preparation& prepared, std::uint64_t first, std::uint64_t count) {
    const std::size_t width = prepared.width();
    std::vector<std::byte> memory;
    MILLRACE_LET(part, x.part(first * width, count * width, memory));
    InputRows rows;
    for (std::uint64_t i = 0; i < count * width; ++i) {
        const double value = part.at(i);
        if (!std::isfinite(value)) rows.unreadable[i / width] = "has a number that is not finite";
        if (prepared.shape.size() > 0)
            rows.bytes.push_back(static_cast<std::uint8_t>(value));
        else
            rows.numbers.push_back((static_cast<float>(value) - prepared.mean[i % width]) / prepared.deviation[i % width]);
    }
    return rows;
}

Result<Inputs> inputs_of(const io::NumberArray& x, const Preparation& prepared, const Path& place) {
    const Shape& shape = prepared.shape;
    const bool images = shape.size() > 0;
    const std::uint64_t width = x.shape[0] > 0 ? x.count() / x.shape[0] : 0;
    const bool fits =
        !images || (is_image(x) && std::cmp_equal(x.shape[1], shape.height) && std::cmp_equal(x.shape[2], shape.width));
    if (!fits || width != prepared.width())
        return Error{fmt::format("has {} inputs of shape [{}]; {} would be right", name_of(x.type),
                                 fmt::join(x.shape.begin() + 1, x.shape.end(), ", "),
                                 images ? fmt::format("U8 of [{}, {}, {}]", shape.height, shape.width, shape.channels)
                                        : fmt::format("[{}]", prepared.width())),
                     place.string()};
    Inputs inputs{images ? "images" : "rows", static_cast<std::int64_t>(x.shape[0])};
    inputs.read = [x, prepared](std::int64_t first, std::int64_t count) {
        return read_rows(x, prepared, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(count));
    };
    return inputs;
}

}  // namespace

Result<std::vector<Inputs>> open_arrays(const Path& path, const Preparation& prepared) {
    MILLRACE_LET(arrays, read_arrays(path));
    std::vector<const io::NumberArray*> found;
    for (const auto& [name, part] : kArrayParts)
        if (const io::NumberArray* x = find_array(arrays, kInputs, name)) found.push_back(x);
    if (found.empty() && arrays.size() == 1) found.push_back(&arrays.begin()->second);
    if (found.empty()) return Error{"has several arrays, and none is called x, images or vectors", path.string()};
    std::vector<Inputs> all;
    for (const io::NumberArray* x : found) MILLRACE_SET(all.emplace_back(), inputs_of(*x, prepared, path));
    return all;
}

Result<SampleSet> load_array_set(const SampleRequest& request) {
    MILLRACE_LET(arrays, read_arrays(request.path));
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
    std::vector<std::pair<Part, std::int32_t>> counts;
    for (const ArrayPair& pair : pairs) counts.emplace_back(pair.part, static_cast<std::int32_t>(pair.x.shape[0]));
    add_files(set, counts, request);
    MILLRACE_TRY(add_inputs(pairs, request, set));
    MILLRACE_TRY(add_answers(pairs, request, set));
    MILLRACE_TRY(sum_up(set));
    return set;
}

}  // namespace millrace::data
