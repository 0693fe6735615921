#pragma once
// Where the rows of a step come from. A source keeps or streams the samples of a data set; a program asks it for one micro-batch.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/fields.h"
#include "tape/builder.h"

namespace millrace::data {

enum class Part : std::uint8_t { train, validation, test };
constexpr int kPartCount = 3;
constexpr std::size_t index_of(Part part) { return static_cast<std::size_t>(part); }
constexpr const char* name_of(Part part) {
    return part == Part::train ? "train" : part == Part::validation ? "validation" : "test";
}

/// A field to gather, and where to. `into` [K,1,rows,width] may have any row stride; absent: a new buffer, i32 or builder.real().
struct Wanted {
    std::string_view field;
    tensor::View into = {};
};

class BatchSource {
public:
    virtual ~BatchSource() = default;
    [[nodiscard]] virtual std::int32_t samples(Part part) const = 0;
    [[nodiscard]] virtual const Fields& fields() const = 0;

    /// Texts behind the sample at `position` of a pass over `part` that is not shuffled, for people; empty where data has none.
    [[nodiscard]] virtual std::vector<std::string> texts_at(Part part, std::int32_t position) const {
        (void)part, (void)position;
        return {};
    }

    /// Declares the source's buffers, before Store::allocate(), and fills them, after it.
    virtual base::Status declare(tape::Store& store) = 0;
    virtual base::Status upload(tape::Store& store) = 0;

    /// Returns when the rows of step number `step` (from 0, over the whole run) are where gather() takes them from. The training
    /// thread calls it before each step and measures how long it took. Resident data is there once it is uploaded.
    virtual base::Status await_rows(std::uint64_t step) {
        (void)step;
        return base::ok();
    }

    /// Appends the records that fill the fields with the next `rows` rows of the pass over `part`, each member in its own order
    /// when training. All gathers of one micro-batch give the same samples. Gives the views in the order of `fields`. Takes one
    /// operator number when it draws random numbers.
    virtual std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                             std::span<const Wanted> fields) = 0;
    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows, std::initializer_list<Wanted> fields) {
        return gather(builder, part, rows, std::span<const Wanted>(fields.begin(), fields.size()));
    }
};

}  // namespace millrace::data
