#include "data/sample_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/philox.h"
#include "base/result.h"
#include "io/checksum.h"

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

base::Status SampleSet::read(std::int32_t first, std::span<std::byte> inputs) const {
    if (reader) return reader(first, inputs);
    const auto from = bytes.empty() ? std::as_bytes(std::span(numbers)) : std::as_bytes(std::span(bytes));
    std::ranges::copy(from.subspan(static_cast<std::size_t>(first) * input_bytes(), inputs.size()), inputs.begin());
    return base::ok();
}

base::Status SampleSet::for_inputs(const std::function<void(std::int32_t first, std::span<const std::byte> inputs)>& body) const {
    constexpr std::size_t kPieceBytes = 4 << 20;
    const auto most = static_cast<std::int32_t>(std::max<std::size_t>(1, kPieceBytes / std::max<std::size_t>(1, input_bytes())));
    std::vector<std::byte> piece;
    for (std::int32_t first = 0; first < count; first += most) {
        piece.resize(static_cast<std::size_t>(std::min(most, count - first)) * input_bytes());
        MILLRACE_TRY(read(first, piece));
        body(first, piece);
    }
    return base::ok();
}

std::vector<std::int64_t> SampleSet::class_counts(Part of) const {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(preparation.classes));
    if (labels.empty()) return counts;
    for (const std::int32_t sample : part(of)) counts[static_cast<std::size_t>(labels[static_cast<std::size_t>(sample)])] += 1;
    return counts;
}

Moments moments_of(const std::array<std::uint64_t, 256>& histogram) {
    double count = 0, sum = 0, squares = 0;
    for (std::size_t level = 0; level < histogram.size(); ++level) {
        count += static_cast<double>(histogram[level]);
        sum += static_cast<double>(histogram[level]) * static_cast<double>(level);
    }
    if (count == 0) return {};
    const double mean = sum / count;
    for (std::size_t level = 0; level < histogram.size(); ++level) {
        const double away = static_cast<double>(level) - mean;
        squares += static_cast<double>(histogram[level]) * away * away;
    }
    return {mean / 255, std::sqrt(squares / count) / 255};
}

base::Status measure_channels(SampleSet& set) {
    const auto channels = static_cast<std::size_t>(set.preparation.shape.channels), width = static_cast<std::size_t>(set.width);
    std::vector<std::array<std::uint64_t, 256>> histograms(channels);
    std::vector<bool> trains(static_cast<std::size_t>(set.count));
    for (const std::int32_t sample : set.part(Part::train)) trains[static_cast<std::size_t>(sample)] = true;
    MILLRACE_TRY(set.for_inputs([&](std::int32_t first, std::span<const std::byte> inputs) {
        for (std::size_t at = 0, sample = static_cast<std::size_t>(first); at < inputs.size(); at += width, ++sample)
            for (std::size_t i = 0; trains[sample] && i < width; i += channels)
                for (std::size_t c = 0; c < channels; ++c) ++histograms[c][static_cast<std::size_t>(inputs[at + i + c])];
    }));
    set.preparation.mean.clear();
    set.preparation.deviation.clear();
    for (const auto& histogram : histograms) {
        const Moments moments = moments_of(histogram);
        set.preparation.mean.push_back(static_cast<float>(moments.mean));
        // One level's share of rounding is no spread.
        set.preparation.deviation.push_back(moments.deviation > 1e-5 ? static_cast<float>(moments.deviation) : 1.0f);
    }
    return base::ok();
}

base::Status sum_up(SampleSet& set) {
    io::Checksum64 sum;
    MILLRACE_TRY(set.for_inputs([&](std::int32_t, std::span<const std::byte> inputs) { sum.update(inputs); }));
    sum.update(std::as_bytes(std::span(set.labels)));
    sum.update(std::as_bytes(std::span(set.targets)));
    set.checksum = sum.value();
    return base::ok();
}

void scale_targets(SampleSet& set, const std::string& name, const std::vector<double>& values) {
    if (!set.preparation.target) {
        const std::vector<std::int32_t>& train = set.part(Part::train);
        double mean = 0, squares = 0;
        const auto count = static_cast<double>(std::max<std::size_t>(1, train.size()));
        for (const std::int32_t sample : train) mean += values[static_cast<std::size_t>(sample)] / count;
        for (const std::int32_t sample : train) {
            const double away = values[static_cast<std::size_t>(sample)] - mean;
            squares += away * away / count;
        }
        set.preparation.target = Target{name, mean, squares > 0 ? std::sqrt(squares) : 1.0};
    }
    const Target& target = *set.preparation.target;
    set.targets.clear();
    for (const double value : values) set.targets.push_back(static_cast<float>((value - target.mean) / target.deviation));
}

void split_samples(Parts& parts, std::int32_t first, std::int32_t count, double validation, double test, std::uint64_t seed) {
    MILLRACE_ASSERT(validation >= 0 && test >= 0 && validation + test < 1, "shares leave something to train on");
    const auto whole = static_cast<std::uint32_t>(count);
    const auto testing = static_cast<std::uint32_t>(std::floor(count * test)),
               held_out = testing + static_cast<std::uint32_t>(std::floor(count * validation));
    const base::Shuffle order = base::make_shuffle(seed, 0, whole);
    for (std::uint32_t position = 0; position < whole; ++position) {
        const Part part = position < testing ? Part::test : position < held_out ? Part::validation : Part::train;
        parts[index_of(part)].push_back(first + static_cast<std::int32_t>(base::shuffled_index(order, position)));
    }
}

void add_files(SampleSet& set, const std::vector<std::pair<Part, std::int32_t>>& counts, const SampleRequest& request) {
    const bool validates = std::ranges::find(counts, Part::validation, &std::pair<Part, std::int32_t>::first) != counts.end();
    std::int32_t first = 0;
    for (const auto& [part, count] : counts) {
        if (part == Part::train)
            split_samples(set.parts, first, count, validates ? 0 : request.validation, counts.size() > 1 ? 0 : request.test,
                          request.seed);
        for (std::int32_t i = 0; part != Part::train && i < count; ++i) set.part(part).push_back(first + i);
        first += count;
    }
}

Part part_of_name(std::string_view name, const SampleRequest& request) {
    // The checksum mixes the bytes of short names too little for shares of them; Philox does the rest.
    const std::uint64_t sum = io::checksum_of(io::bytes_of(name));
    const double place =
        static_cast<double>(base::random_bits(request.seed ^ sum, static_cast<std::uint32_t>(sum >> 32), 0, 0, sum)) /
        4294967296.0;
    return place < request.test ? Part::test : place < request.test + request.validation ? Part::validation : Part::train;
}

}  // namespace millrace::data
