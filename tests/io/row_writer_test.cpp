#include "io/table_file.h"

#include <gtest/gtest.h>

#include <limits>

#include "io/array_file.h"
#include "temporary_folder.h"

namespace millrace::io {
namespace {

std::string written(RowForm form, const std::vector<std::string>& columns, const std::vector<std::vector<Cell>>& rows,
                    std::uint64_t width = 0, const std::vector<float>& values = {}) {
    test::TemporaryFolder folder;
    const auto done = write_atomically(folder / "rows", [&](FileWriter& to) -> Status {
        RowWriter writer(to, form);
        MILLRACE_TRY(writer.begin(columns, rows.size(), width));
        for (const auto& cells : rows) {
            const Status added = writer.add(cells, values);
            if (!added.ok()) return added;
        }
        return base::ok();
    });
    EXPECT_TRUE(done.ok());
    return read_text(folder / "rows").value();
}

const std::vector<std::string> kColumns{"na,me", "number", "whole"};
const double kNan = std::numeric_limits<double>::quiet_NaN();
const std::vector<std::vector<Cell>> kRows{{"a \"b\"\n", 0.1, std::int64_t{-3}}, {Cell(), kNan, Cell()}};

TEST(RowWriter, CsvQuotesAndLeavesEmpty) {
    EXPECT_EQ(written(RowForm::csv, kColumns, kRows), "\"na,me\",number,whole\n\"a \"\"b\"\"\n\",0.1,-3\n,,\n");
}

TEST(RowWriter, JsonLinesAreObjects) {
    EXPECT_EQ(written(RowForm::json_lines, kColumns, kRows),
              "{\"na,me\": \"a \\\"b\\\"\\n\", \"number\": 0.1, \"whole\": -3}\n"
              "{\"na,me\": null, \"number\": null, \"whole\": null}\n");
    EXPECT_EQ(written(RowForm::json_lines, {"x"}, {{std::string("\xff")}}), "{\"x\": \"\xef\xbf\xbd\"}\n");
}

TEST(RowWriter, NumpyHoldsTheNumbersAlone) {
    const std::string flat = written(RowForm::numpy, {"x"}, {{Cell()}, {Cell()}}, 0, {0.25f});
    EXPECT_EQ((flat.size() - 8) % 64, 0u) << "the numbers are aligned";
    const auto one = parse_npy(bytes_of(flat), "flat");
    ASSERT_TRUE(one.ok()) << one.error().text();
    EXPECT_EQ(one->shape, std::vector<std::uint64_t>{2});
    EXPECT_EQ(one->at(1), 0.25);
    const std::string wide = written(RowForm::numpy, {}, {{}, {}}, 3, {1, 2, 3});
    const auto two = parse_npy(bytes_of(wide), "wide");
    ASSERT_TRUE(two.ok()) << two.error().text();
    EXPECT_EQ(two->shape, (std::vector<std::uint64_t>{2, 3}));
    EXPECT_EQ(two->at(5), 3);
}

TEST(RowWriter, TheNameSaysTheForm) {
    EXPECT_EQ(row_form_of("a/b.csv").value(), RowForm::csv);
    EXPECT_EQ(row_form_of("b.c.jsonl").value(), RowForm::json_lines);
    EXPECT_EQ(row_form_of("b.npy").value(), RowForm::numpy);
    for (const char* name : {"b", "b.json", "csv", "b.npz", ".csv"}) EXPECT_FALSE(row_form_of(name).ok()) << name;
}

}  // namespace
}  // namespace millrace::io
