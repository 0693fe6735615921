#pragma once
// Where the rows of a step come from. A source keeps or streams the samples of a data set; a program asks it for one micro-batch.

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/fields.h"
#include "tape/builder.h"

namespace millrace::data {

/// A field to gather, and where to. `into` [K,1,rows,width] may have any row stride; absent: a new buffer, i32 or builder.real().
struct Wanted {
    std::string_view field;
    tensor::View into = {};
};

/// Rows that a step is about to read: positions [first, first + count) of a pass over `part`.
struct RowsAhead {
    Part part = Part::train;
    std::uint32_t epoch = 0;  ///< of training, from 0
    std::int64_t first = 0, count = 0;
    std::uint64_t step = 0;  ///< its number, from 0: in the whole run, or in a pass of evaluation
    bool prefetch = false;   ///< start reading them, do not wait for them
};

/// How many steps the device has finished, by RowsAhead::step. An error when the device has failed.
using StepsDone = std::function<base::Result<std::uint64_t>()>;

/// What a streamed source did.
struct LoaderCounts {
    std::uint64_t bytes = 0;  ///< training rows moved to the device since the start
    /// Of the epoch: the largest difference of a class's share in a window and in the whole set; absent without classes.
    std::optional<double> mix_deviation = {};
};

class BatchSource {
public:
    virtual ~BatchSource() = default;
    [[nodiscard]] virtual std::int32_t samples(Part part) const = 0;
    [[nodiscard]] virtual const Fields& fields() const = 0;

    /// Texts behind the sample at `position` of a pass over `part` that is not shuffled, for people; empty where data has none.
    [[nodiscard]] virtual std::vector<std::string> texts_at(Part /*part*/, std::int32_t /*position*/) const { return {}; }

    /// What is to know about the data beside its size, for people, a line each.
    [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }

    /// What must be stored with the weights, so that other data is prepared in the same way (data/preparation.h); empty: nothing.
    [[nodiscard]] virtual std::string preparation() const { return {}; }

    /// Declares the source's buffers, before Store::allocate(), and fills them, after it.
    virtual base::Status declare(tape::Store& store) = 0;
    virtual base::Status upload(tape::Store& store) = 0;

    /// Returns when the rows are where gather() takes them from. The training thread calls it before each step and each batch of
    /// an evaluation; how long a step waited is measured. Rows follow each other, or everything launched before has finished.
    /// Resident data is there once it is uploaded. With rows.prefetch it returns at once.
    virtual base::Status await_rows(const RowsAhead& /*rows*/, const StepsDone& /*done*/) { return base::ok(); }
    /// Rows of `part` that one step or batch may read.
    [[nodiscard]] virtual std::int64_t most_rows(Part /*part*/) const { return std::numeric_limits<std::int64_t>::max(); }
    /// Of a streamed source, with the mix of the given epoch, from 0; nothing where data is resident.
    [[nodiscard]] virtual std::optional<LoaderCounts> loader_counts(std::uint32_t /*epoch*/) const { return std::nullopt; }
    /// How the rows come to the device, for people; empty where data is resident.
    [[nodiscard]] virtual std::string loading() const { return {}; }

    /// Appends the records that fill the fields with the next `rows` rows of the pass over `part`, each member in its own order
    /// when training. All gathers of one micro-batch give the same samples. Gives the views in the order of `fields`. Takes one
    /// operator number when it draws random numbers.
    virtual std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                             std::span<const Wanted> fields) = 0;
    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows, std::initializer_list<Wanted> fields) {
        return gather(builder, part, rows, std::span<const Wanted>(fields.begin(), fields.size()));
    }
};

/// Data that is learned in stages: one domain after the other, each for as many epochs, all scored after every epoch.
/// The samples of the validation and of the test part lie domain by domain, in the order in which the domains are learned.
struct Domain {
    std::string name;
    std::array<std::int32_t, kPartCount> samples{};  ///< by part; of train: what an epoch may draw from

    [[nodiscard]] std::int32_t count(Part part) const { return samples[index_of(part)]; }
};

/// Where one record puts all fields of a micro-batch, whichever are wanted: as asked for, else in new buffers.
struct Gathered {
    std::vector<tensor::View> fields;  ///< by number of the source's fields
    std::vector<tensor::View> wanted;  ///< in the order of `wanted`
};
Gathered places_of(tape::Builder& builder, const Fields& fields, std::int32_t rows, std::span<const Wanted> wanted);

/// A source whose samples live in device memory, as tables that programs gather from.
class ResidentSource : public BatchSource {
public:
    [[nodiscard]] std::int32_t samples(Part part) const override {
        return static_cast<std::int32_t>(order_[index_of(part)].size());
    }
    [[nodiscard]] const Fields& fields() const final { return fields_; }
    base::Status declare(tape::Store& store) final;
    base::Status upload(tape::Store& store) override;

protected:
    /// As declare(), by the functions below.
    virtual base::Status declare_tables(tape::Store& store) = 0;
    /// Has upload() call `fill`.
    void on_upload(std::function<void(tape::Store&)> fill) { fills_.push_back(std::move(fill)); }
    /// Declares a table [1,1,rows,cols] that upload() fills with `values`, which stay until then; none: it is left as it is.
    template <class T>
    tensor::View add_table(tape::Store& store, std::string name, tensor::DType dtype, std::int32_t rows, std::int32_t cols,
                           const std::vector<T>& values) {
        const tensor::View table = store.add_data(std::move(name), dtype, rows, cols);
        on_upload([table, &values](tape::Store& to) {
            if (!values.empty()) to.write(table, values);
        });
        return table;
    }
    /// The table of order_, i32 [1,1,samples(part),1].
    tensor::View add_order(tape::Store& store, Part part);

    Fields fields_;
    std::array<std::vector<std::int32_t>, kPartCount> order_;  ///< rows of the part's tables

private:
    std::vector<std::function<void(tape::Store&)>> fills_;
};

}  // namespace millrace::data
