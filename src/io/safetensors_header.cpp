#include "io/safetensors_header.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace millrace::io {
namespace {

/// Event handler instead of a document: a document would silently keep the last of two equal names and build whatever nesting a
/// hostile header asks for.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
public:
    [[nodiscard]] Header take() { return std::move(header_); }
    [[nodiscard]] const std::string& problem() const { return problem_; }

    bool null() override { return refuse("null"); }
    bool boolean(bool) override { return refuse("a boolean"); }
    bool number_float(number_float_t, const string_t&) override { return refuse("a fraction"); }
    bool binary(binary_t&) override { return refuse("binary data"); }
    bool number_integer(number_integer_t) override { return refuse("a negative number"); }

    bool number_unsigned(number_unsigned_t value) override {
        if (state_ == State::kShape) {
            if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
                return fail("a dimension that does not fit 63 bits");
            entry_.shape.push_back(static_cast<std::int64_t>(value));
            return true;
        }
        if (state_ == State::kOffsets) {
            if (offsets_ == 2) return fail("data_offsets with more than two numbers");
            (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
            return true;
        }
        return refuse("a number");
    }

    bool string(string_t& text) override {
        if (state_ == State::kType) {
            entry_.type = std::move(text);
            state_ = State::kTensor;
            return true;
        }
        if (state_ == State::kMetadataValue) {
            header_.metadata[metadata_key_] = std::move(text);
            state_ = State::kMetadata;
            return true;
        }
        return refuse("a string");
    }

    bool start_object(std::size_t) override {
        if (state_ == State::kStart)
            state_ = State::kNames;
        else if (state_ == State::kName)
            state_ = in_metadata_ ? State::kMetadata : State::kTensor;
        else
            return refuse("an object");
        return true;
    }

    bool key(string_t& text) override {
        if (state_ == State::kNames) {
            if (!names_.insert(text).second) return fail(fmt::format("the name '{}' twice", text));
            in_metadata_ = text == "__metadata__";
            entry_ = HeaderEntry{};
            entry_.name = std::move(text);
            seen_type_ = seen_shape_ = seen_offsets_ = false;
            state_ = State::kName;
            return true;
        }
        if (state_ == State::kMetadata) {
            if (header_.metadata.contains(text)) return fail(fmt::format("the metadata key '{}' twice", text));
            metadata_key_ = std::move(text);
            state_ = State::kMetadataValue;
            return true;
        }
        if (text == "dtype") return field(seen_type_, State::kType, text);
        if (text == "shape") return field(seen_shape_, State::kShapeStart, text);
        if (text == "data_offsets") return field(seen_offsets_, State::kOffsetsStart, text);
        return fail(fmt::format("tensor '{}' with the unknown key '{}'", entry_.name, text));
    }

    bool end_object() override {
        if (state_ == State::kNames) {
            state_ = State::kDone;
            return true;
        }
        if (state_ == State::kTensor) {
            if (!seen_type_ || !seen_shape_ || !seen_offsets_)
                return fail(fmt::format("tensor '{}' without dtype, shape or data_offsets", entry_.name));
            header_.entries.push_back(std::move(entry_));
        }
        state_ = State::kNames;
        return true;
    }

    bool start_array(std::size_t) override {
        if (state_ == State::kShapeStart)
            state_ = State::kShape;
        else if (state_ == State::kOffsetsStart)
            state_ = State::kOffsets, offsets_ = 0;
        else
            return refuse("a list");
        return true;
    }

    bool end_array() override {
        if (state_ == State::kOffsets && offsets_ != 2) return fail("data_offsets with fewer than two numbers");
        state_ = State::kTensor;
        return true;
    }

    bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
        return fail(fmt::format("text that is not JSON at byte {}", position));
    }

private:
    enum class State {
        kStart,
        kNames,
        kName,
        kTensor,
        kType,
        kShapeStart,
        kShape,
        kOffsetsStart,
        kOffsets,
        kMetadata,
        kMetadataValue,
        kDone
    };

    bool fail(std::string what) {
        if (problem_.empty()) problem_ = std::move(what);
        return false;
    }

    bool refuse(std::string_view what) {
        return fail(entry_.name.empty() ? fmt::format("{} where it does not belong", what)
                                        : fmt::format("{} where it does not belong, at '{}'", what, entry_.name));
    }

    bool field(bool& seen, State next, const std::string& text) {
        if (seen) return fail(fmt::format("tensor '{}' with two keys '{}'", entry_.name, text));
        seen = true;
        state_ = next;
        return true;
    }

    State state_ = State::kStart;
    Header header_;
    HeaderEntry entry_;
    std::set<std::string, std::less<>> names_;
    std::string metadata_key_;
    std::string problem_;
    bool in_metadata_ = false;
    bool seen_type_ = false;
    bool seen_shape_ = false;
    bool seen_offsets_ = false;
    int offsets_ = 0;
};

}  // namespace

Result<Header> parse_header(std::string_view json, const Path& place) {
    if (json.empty() || json.front() != '{')
        return Error{"the header does not begin with '{': not a safetensors file", place.string()};
    HeaderReader reader;
    if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader))
        return Error{fmt::format("the header holds {}", reader.problem()), place.string()};
    return reader.take();
}

}  // namespace millrace::io
