#pragma once
// Where the rows of a step come from. A source keeps or streams the samples of a data set; a program asks it for one micro-batch.

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"
#include "tape/builder.h"

namespace millrace::data {

enum class Part : std::uint8_t { train, validation, test };
constexpr int kPartCount = 3;
constexpr std::size_t index_of(Part part) { return static_cast<std::size_t>(part); }
constexpr const char* name_of(Part part) {
    return part == Part::train ? "train" : part == Part::validation ? "validation" : "test";
}

/// The two sentences of a pair.
enum class Side : std::uint8_t { input, target };
constexpr int kSideCount = 2;

class BatchSource {
public:
    virtual ~BatchSource() = default;
    [[nodiscard]] virtual std::int32_t samples(Part part) const = 0;
    [[nodiscard]] virtual std::int32_t features() const = 0;  ///< width of one sample
    [[nodiscard]] virtual std::int32_t classes() const = 0;   ///< labels are in [0, classes)

    /// Question and answer behind the sample at `position` of a pass over `part` that is not shuffled; empty where data has none.
    [[nodiscard]] virtual std::pair<std::string, std::string> texts_at(Part part, std::int32_t position) const {
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

    /// Appends the records that fill x [K,1,rows,features] (real, any row stride) with the next rows of the pass over `part`,
    /// each member in its own order when training; gives what they are compared with: labels i32 [K,1,rows,1], or for sources of
    /// vectors goals stat [K,1,rows,classes]. Takes one operator number when it draws random numbers.
    virtual tensor::View gather(tape::Builder& builder, Part part, const tensor::View& x) = 0;

    /// Most tokens of a sentence; 0: the source has no sentences.
    [[nodiscard]] virtual std::int32_t tokens(Side side) const {
        (void)side;
        return 0;
    }
    /// Appends the records that fill ids i32 [K,1,rows,tokens(side)] and lengths i32 [K,1,rows,1] with the sentences of the rows
    /// that gather() gives in the same micro-batch. Only of sources with sentences.
    virtual void gather_sentences(tape::Builder& builder, Part part, Side side, const tensor::View& ids,
                                  const tensor::View& lengths) {
        (void)builder, (void)part, (void)side, (void)ids, (void)lengths;
        MILLRACE_ASSERT(false, "the source has no sentences");
    }
};

}  // namespace millrace::data
