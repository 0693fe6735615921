#pragma once
// A sample is a set of named fields. A source says which it has, a model which it wants.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace::data {

/// What a set consists of. Samples have an input each, such as an image or a row of a table, and an answer to it.
enum class DataKind : std::uint8_t { samples, pairs, recordings, text };

/// Whether a set may stay in files or host memory while it is trained on (data/stream).
constexpr bool can_stream(DataKind kind) { return kind == DataKind::samples || kind == DataKind::recordings; }

/// What its samples are called.
constexpr const char* unit_of(DataKind kind) {
    constexpr const char* kUnits[] = {"samples", "pairs", "segments", "windows"};
    return kUnits[static_cast<int>(kind)];
}

/// Identifies the data a run was trained on, wherever it lies.
struct DataIdentity {
    std::string name;
    std::int64_t train = 0, validation = 0, test = 0;
    std::uint64_t checksum = 0;
    bool streamed = false;  ///< its samples come in another order than those of a resident set
    bool operator==(const DataIdentity&) const = default;
};

// What a data set is to those who do not read it: its kind and its identity.

class Tokenizer;

enum class Part : std::uint8_t { train, validation, test };
constexpr int kPartCount = 3;
inline constexpr Part kAllParts[] = {Part::train, Part::validation, Part::test};
constexpr std::size_t index_of(Part part) { return static_cast<std::size_t>(part); }
constexpr const char* name_of(Part part) {
    return part == Part::train ? "train" : part == Part::validation ? "validation" : "test";
}
/// What the classes of a label are.
struct Classes {
    std::vector<std::string> names;
    std::vector<std::int64_t> counts;  ///< training samples of each
    std::int32_t positive = -1;        ///< the one that is looked for; -1: none
    /// Samples in a row that have one label in common, outermost first: 40 x 2 windows of a recording. Empty: each has its own.
    std::vector<std::int32_t> together;
    bool repeats = false;  ///< of recordings: short ones were repeated to their full length; else padded with silence
};

/// What is taken from each element of a sample and what it is divided by, so that training values have mean 0 and deviation 1.
struct Scaling {
    std::vector<float> mean, deviation;
};

/// Of one part of a text.
struct TextStatistics {
    std::int64_t tokens = 0, unknown = 0;
    double unigram_perplexity = 0;  ///< of the training part's token frequencies: what a model must beat

    [[nodiscard]] double unknown_share() const {
        return tokens > 0 ? static_cast<double>(unknown) / static_cast<double>(tokens) : 0;
    }
};

/// Of an image: rows, columns, and values of a pixel, which lie together. Zeros of what is no image.
struct Shape {
    std::int32_t height = 0, width = 0, channels = 0;

    [[nodiscard]] std::int64_t size() const { return std::int64_t{height} * width * channels; }
    bool operator==(const Shape&) const = default;
};

struct Field {
    enum class Kind : std::uint8_t { real, integer };
    std::string name;  ///< "image", "label", "vector", "goal", "input_tokens"
    Kind kind = Kind::real;
    std::int32_t width = 1;                           ///< elements of a sample; of a wanted field 0: any
    std::int32_t limit = 0;                           ///< integers are in [0, limit): classes of a label, numbers of a vocabulary
    std::shared_ptr<const Tokenizer> tokenizer = {};  ///< of tokens
    std::vector<std::string> names = {};              ///< of integers, one for each below `limit`; empty: they have none
    std::shared_ptr<const Classes> classes = {};      ///< of a label, where the source knows them
    std::shared_ptr<const Scaling> scaling = {};      ///< of numbers that were measured
    std::vector<TextStatistics> statistics = {};      ///< of the tokens of a text, by part: train, validation, test
    Shape shape = {};                                 ///< of an image
};
using Fields = std::vector<Field>;

/// Null when there is none of that name.
const Field* find_field(const Fields& fields, std::string_view name);
/// Its number; there must be one of that name.
std::size_t field_index(const Fields& fields, std::string_view name);
/// "image: 28 x 28 x 1 real, label: 1 integer below 10"
std::string text_of(const Fields& fields);
/// Refuses, with both lists, a source that lacks a field or has it of another kind or width.
base::Status require_fields(const Fields& has, const Fields& wants, const std::string& model);

/// What a checkpoint says about the data: fields keep the widths and the tokenizer they were trained with.
struct StoredData {
    std::shared_ptr<const Tokenizer> tokenizer = {};
    std::map<std::string, std::int32_t> widths = {};  ///< by field
    std::shared_ptr<const Scaling> scaling = {};
    std::optional<bool> streamed = {};  ///< whether the run's data is streamed; of a run that goes on
    std::string preparation = {};       ///< what encode() of a Preparation gave; empty: nothing is stored
};

}  // namespace millrace::data
