#include "bench/row_recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "base/philox.h"
#include "data/forms.h"
#include "data/pairs/resident_pairs.h"
#include "data/recordings/resident_recordings.h"
#include "data/resident_samples.h"
#include "data/text/text_set.h"

namespace millrace::bench {
namespace {

constexpr std::int32_t kImages = 54000, kSide = 28, kClasses = 10;
constexpr std::int64_t kImageBytes = 512 << 20;
constexpr std::uint32_t kPairs = 5021, kVector = 768;
constexpr std::uint32_t kRecordedWindows = 400'000;
constexpr std::int64_t kMostRows = 1 << 24;  ///< of a step
constexpr std::uint32_t kTokens = 2'048'000;
constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();

/// The most of `samples` that make whole steps of `rows`, at least one.
std::uint32_t whole_steps(std::uint32_t samples, std::uint32_t rows) { return std::max(samples / rows * rows, rows); }

/// Images of data.size, or 28 x 28, in colour where data.colour asks for it; as many as kImageBytes hold, or a step needs.
base::Result<std::shared_ptr<const data::SampleSet>> random_images(const base::Recipe& recipe, std::uint32_t rows) {
    auto set = std::make_shared<data::SampleSet>();
    data::Shape& shape = set->preparation.shape;
    shape = {kSide, kSide, recipe.text("data.colour") == "colour" ? 3 : 1};
    if (!recipe.text("data.size").empty()) {
        const auto size = data::parse_size(recipe.text("data.size"));
        if (!size.ok()) return recipe.bad("data.size", size.error().message);
        std::tie(shape.width, shape.height) = *size;
    }
    set->name = "random";
    set->preparation.classes = kClasses;
    set->preparation.mean.assign(static_cast<std::size_t>(shape.channels), 0.286f);
    set->preparation.deviation.assign(static_cast<std::size_t>(shape.channels), 0.353f);
    set->width = static_cast<std::int32_t>(shape.size());
    const auto most = static_cast<std::uint32_t>(std::clamp<std::int64_t>(kImageBytes / shape.size(), 1, kImages));
    set->count = static_cast<std::int32_t>(whole_steps(most, rows));
    set->bytes.resize(static_cast<std::size_t>(set->count) * static_cast<std::size_t>(set->width));
    for (std::size_t i = 0; i < set->bytes.size(); i += sizeof(std::uint32_t)) {
        const std::uint32_t bits = base::random_bits(1, 0, 0, 0, i);
        std::memcpy(set->bytes.data() + i, &bits, std::min(sizeof bits, set->bytes.size() - i));
    }
    for (std::int32_t i = 0; i < set->count; ++i) {
        set->labels.push_back(static_cast<std::int32_t>(base::random_bits(1, 1, 0, 0, static_cast<std::uint64_t>(i)) % kClasses));
        set->part(data::Part::train).push_back(i);
    }
    return std::shared_ptr<const data::SampleSet>(std::move(set));
}

std::shared_ptr<const data::PairSet> random_pairs(std::uint32_t rows) {
    auto set = std::make_shared<data::PairSet>();
    set->name = "random";
    set->count = whole_steps(kPairs, rows);
    set->dimensions = kVector;
    for (std::vector<float>* side : {&set->inputs, &set->targets}) {
        const std::uint32_t stream = side == &set->inputs ? 1 : 2;
        side->resize(std::size_t{set->count} * kVector);
        for (std::size_t i = 0; i < side->size(); ++i)
            (*side)[i] = base::random_normal(7, 0, 0, stream, i) / std::sqrt(static_cast<float>(kVector));
    }
    for (std::uint32_t i = 0; i < set->count; ++i) set->part(data::Part::train).push_back(static_cast<std::int32_t>(i));
    return set;
}

/// Recordings of 80 windows.
std::shared_ptr<const data::RecordingSet> random_recordings(std::uint32_t rows) {
    auto set = std::make_shared<data::RecordingSet>();
    set->name = "random";
    set->width = 64;
    set->windows = 80;
    set->classes = {{"NOLEAK", "LEAK"}, {22339 * 80, 17224 * 80}, 1, {40, 2}};
    data::Recordings& train = set->parts[data::index_of(data::Part::train)];
    train.count = static_cast<std::int32_t>(whole_steps(kRecordedWindows, rows) + 79) / 80;
    train.features.resize(static_cast<std::size_t>(train.count) * 80 * 64);
    for (std::size_t i = 0; i < train.features.size(); ++i) {  // halves between 1 and 2, either sign
        const std::uint32_t bits = base::random_bits(11, 0, 0, 0, i);
        train.features[i] = static_cast<std::uint16_t>(0x3c00u | (bits & 0x3ffu) | (bits & 0x8000u));
    }
    for (std::int32_t r = 0; r < train.count; ++r)
        train.labels.push_back(static_cast<std::int32_t>(base::random_bits(11, 1, 0, 0, static_cast<std::uint64_t>(r)) % 2));
    set->scaling = std::make_shared<const data::Scaling>(data::Scaling{std::vector<float>(64, 0), std::vector<float>(64, 1)});
    return set;
}

/// A window more than the samples of training, which leaves room for every shift; elsewhere one window and its last target.
std::shared_ptr<const data::TextSet> random_text(std::uint32_t rows, std::uint32_t length, std::uint32_t words) {
    auto set = std::make_shared<data::TextSet>();
    set->name = "random";
    set->vocabulary = static_cast<std::int32_t>(words);
    set->tokenizer = std::make_shared<const data::Tokenizer>(data::Tokenizer::count_words("random", set->vocabulary).value());
    for (const data::Part part : data::kAllParts) {
        std::vector<std::int32_t>& tokens = set->parts[data::index_of(part)];
        tokens.resize(part == data::Part::train ? (std::size_t{whole_steps(kTokens / length, rows)} + 1) * length : length + 1);
        for (std::size_t i = 0; i < tokens.size(); ++i)
            tokens[i] = static_cast<std::int32_t>(base::random_bits(13, static_cast<std::uint32_t>(part), 0, 0, i) % words);
    }
    set->statistics = data::measure_text(*set);
    return set;
}

base::Result<std::unique_ptr<data::BatchSource>> text_source(const base::Recipe& recipe, std::uint32_t rows) {
    const std::int64_t length = recipe.integer("data.length"), tokens = (std::int64_t{rows} + 1) * length;
    if (tokens > kMostTokens)
        return recipe.bad("data.length", fmt::format("{} windows of data.length = {} have {} tokens; at most {} would be right",
                                                     rows, length, tokens, kMostTokens));
    auto set =
        random_text(rows, static_cast<std::uint32_t>(length), static_cast<std::uint32_t>(recipe.integer("data.vocabulary")));
    return std::unique_ptr<data::BatchSource>(
        std::make_unique<data::ResidentText>(std::move(set), static_cast<std::int32_t>(length)));
}

}  // namespace

base::Result<std::unique_ptr<data::BatchSource>> random_data(const base::Recipe& recipe, data::DataKind kind) {
    const std::int64_t wanted = recipe.integer("train.batch") * recipe.integer("train.accumulate");
    if (wanted > kMostRows)
        return recipe.bad("train.accumulate", fmt::format("a step of {} rows; a benchmark has at most {}", wanted, kMostRows));
    const auto rows = static_cast<std::uint32_t>(wanted);
    using Source = std::unique_ptr<data::BatchSource>;
    if (kind == data::DataKind::text) return text_source(recipe, rows);
    if (kind == data::DataKind::recordings) return Source(std::make_unique<data::ResidentRecordings>(random_recordings(rows)));
    if (kind == data::DataKind::pairs) return Source(std::make_unique<data::PairSource>(random_pairs(rows)));
    MILLRACE_LET(images, random_images(recipe, rows));
    return Source(std::make_unique<data::ResidentSamples>(std::move(images)));
}

}  // namespace millrace::bench
