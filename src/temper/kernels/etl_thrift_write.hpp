// Thrift's compact protocol, as much of it as Parquet's page headers and footer need.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace temper_etl {

class Compact {
public:
    enum Type : int { I32 = 5, I64 = 6, Binary = 8, List = 9, Struct = 12 };
    std::string text;

    void number(int id, Type type, int64_t value) {
        head(id, type);
        number(value);
    }
    void number(int64_t value) { varint(uint64_t(value) << 1 ^ uint64_t(value >> 63)); }
    void string(int id, const std::string &value) {
        head(id, Binary);
        string(value);
    }
    void string(const std::string &value) {
        varint(value.size());
        text += value;
    }
    void list(int id, Type element, size_t count) {
        head(id, List);
        text += char((count < 15 ? count : 15) << 4 | size_t(element));
        if (count >= 15) varint(count);
    }
    void open(int id) {
        head(id, Struct);
        open();
    }
    void open() { outer_.push_back(std::exchange(last_, 0)); }
    void close() {
        text += '\0';
        last_ = outer_.back();
        outer_.pop_back();
    }
    void varint(uint64_t value) {
        for (; value >= 0x80; value >>= 7) text += char(value | 0x80);
        text += char(value);
    }

private:
    void head(int id, Type type) {  // ids here rise by less than 16
        text += char((id - last_) << 4 | type);
        last_ = id;
    }

    int last_ = 0;
    std::vector<int> outer_;
};

}  // namespace temper_etl
