/* Walks the records of a batch of magic 2: checks that its inside is what its header says, byte after byte.
 *
 * Lives here: the same rules and verdicts as protocol/records_walk.py, where they stand as a table; the two are held
 * against each other by tests/property/test_records_walk.py. Must never come in: memory of its own, the C library,
 * Python.h: one file serves every Python and every libc of a machine.
 *
 * A walk is a `struct walk`, fed pieces of any size, cut anywhere. Nothing is copied or read beyond the piece.
 * The struct's fields stand in compiled/library.py once more, in this order.
 */
#include <stddef.h>
#include <stdint.h>

#define TIMESTAMP_MAX 253402300799999LL /* the end of the year 9999, in ms */

enum verdict {
    GOES_ON,
    RECORD_LENGTH,
    ATTRIBUTES,
    VARINT,
    BEYOND_RECORD,
    OFFSET_DELTA,
    NEGATIVE_LENGTH,
    HEADERS_COUNT,
    HEADER_KEY,
    RECORD_REST,
    MORE_BYTES,
    FEWER_RECORDS,
    TIMESTAMP,
    KEYLESS,
};

enum field { SIZE, FLAGS, TIME, OFFSET, KEY, VALUE, HEADERS, NAME, CONTENT };

struct walk {
    int64_t base_timestamp; /* the header's, ms */
    int64_t count;          /* records that the header claims */
    int32_t keys_required;  /* 1 in compacted topics */
    int32_t times_checked;  /* 0 where the broker stamps its own time */
    int64_t max_timestamp;  /* the greatest timestamp met, at least -1 */
    int64_t bad_time;       /* the first record with an impossible timestamp, or -1 */
    int64_t keyless;        /* the first record without the key that it needs, or -1 */
    int64_t records;        /* records walked to their end */
    int64_t position;       /* bytes walked */
    int64_t left;           /* bytes of the record that are not walked or taken yet */
    int64_t skip;           /* bytes of a key or value still to be passed over */
    int64_t headers;        /* headers of the record still to come */
    uint64_t value;         /* the varint so far */
    int32_t shift;          /* bits of it so far */
    int32_t field;          /* what the next varint is */
    int32_t verdict;        /* stays once it is not GOES_ON */
};

static int64_t zigzag(uint64_t raw) { return (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1); }

static int impossible(int64_t time) { return time > TIMESTAMP_MAX || time < -TIMESTAMP_MAX; }

/* A timestamp's place among the records: wraps as Java's does, so that a huge base and a huge delta cannot hide. */
static void take_time(struct walk *w, int64_t delta) {
    int64_t time = (int64_t)((uint64_t)w->base_timestamp + (uint64_t)delta);
    if (w->times_checked && impossible(time) && w->bad_time < 0)
        w->bad_time = w->records;
    if (time > w->max_timestamp)
        w->max_timestamp = time;
}

/* The length of a key, value or header value; -1 is null. */
static int take_length(struct walk *w, int64_t length) {
    if (length < -1)
        return NEGATIVE_LENGTH;
    if (length > w->left)
        return BEYOND_RECORD;
    if (length > 0) {
        w->left -= length;
        w->skip = length;
    }
    return GOES_ON;
}

static int end_record(struct walk *w) {
    if (w->left)
        return RECORD_REST;
    w->records++;
    w->field = SIZE;
    return GOES_ON;
}

/* What a whole varint means where it stands; the next field, or a verdict. */
static int take(struct walk *w, int64_t number) {
    int verdict;
    switch (w->field) {
    case SIZE:
        if (number < 1)
            return RECORD_LENGTH;
        w->left = number;
        break;
    case FLAGS: /* one byte, which means nothing */
        break;
    case TIME:
        take_time(w, number);
        break;
    case OFFSET:
        if (number != w->records)
            return OFFSET_DELTA;
        break;
    case KEY:
        if (number == -1 && w->keys_required && w->keyless < 0)
            w->keyless = w->records;
        if ((verdict = take_length(w, number)))
            return verdict;
        break;
    case VALUE:
        if ((verdict = take_length(w, number)))
            return verdict;
        break;
    case HEADERS:
        if (number < 0 || number > w->left)
            return HEADERS_COUNT;
        w->headers = number;
        if (!number)
            return end_record(w);
        break;
    case NAME:
        if (number < 0)
            return HEADER_KEY;
        if ((verdict = take_length(w, number)))
            return verdict;
        break;
    default: /* CONTENT */
        if ((verdict = take_length(w, number)))
            return verdict;
        if (!--w->headers)
            return end_record(w);
        w->field = NAME;
        return GOES_ON;
    }
    w->field++;
    return GOES_ON;
}

/* A varint of at most 3 bytes; NULL when it is longer or may be cut. */
static const uint8_t *short_varint(const uint8_t *at, const uint8_t *end, int64_t *number) {
    if (end - at < 3)
        return NULL;
    uint32_t raw = *at++;
    if (raw & 128) {
        raw = (raw & 127) | (uint32_t)*at << 7;
        if (*at++ & 128) {
            if (*at & 128)
                return NULL;
            raw = (raw & 16383) | (uint32_t)*at++ << 14;
        }
    }
    *number = zigzag(raw);
    return at;
}

/* A record that lies whole in the piece, has no headers and is right: the place behind it. Else NULL, and nothing has
 * happened: what is long, cut or wrong is walked field by field. */
static const uint8_t *pass_plain_record(struct walk *w, const uint8_t *at, const uint8_t *end) {
    int64_t size, delta, offset, length;
    if (!(at = short_varint(at, end, &size)) || size < 6 || size > end - at)
        return NULL;
    const uint8_t *stop = at + size;
    if (*at & 128)
        return NULL;
    if (!(at = short_varint(at + 1, end, &delta)) || !(at = short_varint(at, end, &offset)) || offset != w->records)
        return NULL;
    int64_t time = (int64_t)((uint64_t)w->base_timestamp + (uint64_t)delta);
    if (w->times_checked && impossible(time))
        return NULL;
    if (!(at = short_varint(at, end, &length)) || length < -1 || length > stop - at || (length < 0 && w->keys_required))
        return NULL;
    if (!(at = short_varint(length > 0 ? at + length : at, end, &length)) || length < -1 || length > stop - at)
        return NULL;
    at += length > 0 ? length : 0;
    if (at + 1 != stop || *at)
        return NULL;
    if (time > w->max_timestamp)
        w->max_timestamp = time;
    w->records++;
    return stop;
}

static int walk_piece(struct walk *w, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        if (w->skip) {
            int64_t step = end - at < w->skip ? end - at : w->skip;
            at += step;
            w->skip -= step;
            continue;
        }
        if (w->field == SIZE && !w->shift && w->records < w->count) {
            const uint8_t *behind = pass_plain_record(w, at, end);
            if (behind) {
                at = behind;
                continue;
            }
        }
        uint8_t byte = *at++;
        int last_shift = w->field == TIME ? 63 : 28;
        if (w->field != SIZE) {
            if (--w->left < 0)
                return BEYOND_RECORD;
        } else if (w->records == w->count)
            return MORE_BYTES;
        if (w->field == FLAGS && byte & 128)
            return ATTRIBUTES;
        w->value |= (uint64_t)(byte & 127) << w->shift;
        if (w->shift == last_shift && byte > (last_shift == 63 ? 1 : 15))
            return VARINT; /* longer than 5 or 10 bytes, or more than 32 or 64 bits */
        if (byte & 128) {
            w->shift += 7;
            continue;
        }
        int64_t number = zigzag(w->value);
        w->value = 0;
        w->shift = 0;
        int verdict = take(w, number);
        if (verdict)
            return verdict;
    }
    return GOES_ON;
}

static int end_walk(const struct walk *w) {
    if (w->field != SIZE || w->skip || w->shift || w->records != w->count)
        return FEWER_RECORDS;
    if (w->bad_time >= 0)
        return TIMESTAMP;
    return w->keyless >= 0 ? KEYLESS : GOES_ON;
}

/* Begins a walk. */
void records_walk_begin(struct walk *w, int64_t base_timestamp, int64_t count, int keys_required, int times_checked) {
    *w = (struct walk){.base_timestamp = base_timestamp, .count = count, .max_timestamp = -1, .keyless = -1,
                       .keys_required = keys_required, .times_checked = times_checked};
    w->bad_time = times_checked && impossible(base_timestamp) ? 0 : -1;
}

/* Walks the next piece, which is the last one when `last` is not 0; the verdict so far. */
int records_walk_feed(struct walk *w, const uint8_t *piece, size_t size, int last) {
    if (!w->verdict) {
        w->verdict = walk_piece(w, piece, piece + size);
        w->position += (int64_t)size;
        if (!w->verdict && last)
            w->verdict = end_walk(w);
    }
    return w->verdict;
}

/* The whole walk at once. */
int records_walk(struct walk *w, int64_t base_timestamp, int64_t count, int keys_required, int times_checked,
                 const uint8_t *area, size_t size) {
    records_walk_begin(w, base_timestamp, count, keys_required, times_checked);
    return records_walk_feed(w, area, size, 1);
}
