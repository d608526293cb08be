<?php
/* Fills the shop with products and orders. As root: php seed.php 20000 100000 */

[$products, $orders] = [(int) ($argv[1] ?? 20000), (int) ($argv[2] ?? 100000)];
define('WP_INSTALLING', true);
$_SERVER['HTTP_HOST'] = 'shop.test';
require '/usr/share/wordpress/wp-load.php';
require_once ABSPATH . 'wp-admin/includes/upgrade.php';
if (!is_blog_installed()) {
    wp_install('The shop', 'admin', 'admin@shop.test', false, '', 'a password of the trial');
}
update_option('permalink_structure', '/%postname%/');
mt_srand(1);
$wpdb->query('CREATE TABLE IF NOT EXISTS shop_cart (visitor VARCHAR(32), product BIGINT, added DATETIME, KEY (visitor))');
$wpdb->query('CREATE TABLE IF NOT EXISTS shop_order (id BIGINT AUTO_INCREMENT PRIMARY KEY, visitor VARCHAR(32),
    product BIGINT, ordered DATETIME, KEY (visitor), KEY (product))');
$words = explode(' ', 'oak steel blue small garden lamp chair table wool cotton glass light heavy red round kitchen ' .
    'desk summer winter travel music paper silver clock bottle soft strong quiet bright wooden folding square');
$some = fn ($n) => implode(' ', array_map(fn () => $words[mt_rand(0, count($words) - 1)], range(1, $n)));
foreach (array_chunk(range(1, $products), 500) as $chunk) {
    $rows = array_map(fn ($i) => $wpdb->prepare('(1, NOW() - INTERVAL %d MINUTE, UTC_TIMESTAMP(), %s, %s, "", "", "",
        "publish", "product", %s, NOW(), UTC_TIMESTAMP(), "")', $i, $some(200), ucfirst($some(3)) . " $i", "p$i"), $chunk);
    $wpdb->query('INSERT INTO wp_posts (post_author, post_date, post_date_gmt, post_content, post_title, post_excerpt,
        to_ping, pinged, post_status, post_type, post_name, post_modified, post_modified_gmt, post_content_filtered)
        VALUES ' . implode(',', $rows));
}
$first = (int) $wpdb->get_var("SELECT MIN(ID) FROM wp_posts WHERE post_type = 'product'");
foreach (array_chunk(range(1, $orders), 5000) as $chunk) {
    $rows = array_map(fn ($i) => sprintf("('v%d', %d, NOW())", mt_rand(1, 20000), $first + mt_rand(0, $products - 1)), $chunk);
    $wpdb->query('INSERT INTO shop_order (visitor, product, ordered) VALUES ' . implode(',', $rows));
}
delete_option('rewrite_rules');
echo $wpdb->get_var("SELECT COUNT(*) FROM wp_posts WHERE post_type = 'product'"), ' products, ',
    $wpdb->get_var('SELECT COUNT(*) FROM shop_order'), " orders\n";
